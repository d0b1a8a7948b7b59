//! Builds a model node by node, as a framework's exporter would.

use half::f16;

use crate::proto::{Attribute, Dim, ElemType, Message, tensor, value_info};

/// Name of a value in the model.
pub type Name = String;

/// A finished model.
pub struct Model {
    graph: Message,
    parameters: usize,
}

impl Model {
    /// Trained numbers: those that training changes by gradients, so no running statistics.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.graph.len() + 64);
        self.write(&mut bytes).expect("a vector takes all bytes");
        bytes
    }

    pub fn write(&self, to: &mut impl std::io::Write) -> std::io::Result<()> {
        let opset = Message::default().text(1, "").int(2, 17);
        let head = Message::default().int(1, 8).text(2, "ansc-models").nested(8, &opset);
        to.write_all(&head.into_bytes())?;
        // The graph may be half a gigabyte: only its header is built, the content is not copied.
        to.write_all(&Message::header(7, self.graph.len()).into_bytes())?;
        to.write_all(self.graph.bytes())
    }
}

/// How much of a network is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As published.
    Full,
    /// Few layers and small pictures: each kind of node is there, and tests are quick.
    Reduced,
}

pub struct Builder {
    graph: Message,
    counter: usize,
    random: Random,
    scale: Scale,
    floats: ElemType,
    parameters: usize,
}

impl Builder {
    pub fn new(name: &str) -> Builder {
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        Builder {
            graph: Message::default().text(2, name),
            counter: 0,
            random: Random(seed),
            scale: Scale::Full,
            floats: ElemType::F32,
            parameters: 0,
        }
    }

    #[must_use]
    pub fn scale(mut self, scale: Scale) -> Builder {
        self.scale = scale;
        self
    }

    /// Inputs, weights and outputs are half floats from here on.
    pub fn half_floats(&mut self) {
        self.floats = ElemType::F16;
    }

    /// A size or a number of layers: `full`, or `reduced` in a reduced network.
    pub fn choose<T>(&self, full: T, reduced: T) -> T {
        match self.scale {
            Scale::Full => full,
            Scale::Reduced => reduced,
        }
    }

    pub fn finish(self) -> Model {
        Model { graph: self.graph, parameters: self.parameters }
    }

    fn fresh(&mut self, prefix: &str) -> Name {
        self.counter += 1;
        format!("{prefix}_{}", self.counter)
    }

    pub fn input(&mut self, name: &str, shape: &[usize]) -> Name {
        self.typed_input(
            name,
            self.floats,
            &shape.iter().map(|&d| Dim::Size(d)).collect::<Vec<_>>(),
        )
    }

    pub fn typed_input(&mut self, name: &str, elem: ElemType, dims: &[Dim]) -> Name {
        let info = value_info(name, elem, dims);
        self.graph.add(11, &info.into_bytes());
        name.into()
    }

    pub fn output(&mut self, name: &str, shape: &[impl Clone + Into<Dim>]) {
        let dims: Vec<Dim> = shape.iter().map(|d| d.clone().into()).collect();
        self.graph.add(12, &value_info(name, self.floats, &dims).into_bytes());
    }

    /// A node with one result.
    pub fn op(&mut self, op: &str, inputs: &[&str], attributes: &[(&str, Attribute)]) -> Name {
        self.ops(op, inputs, attributes, 1).pop().expect("one result")
    }

    /// A node whose only result is an output of the model, under the name `name`.
    pub fn result(
        &mut self,
        name: &str,
        shape: &[impl Clone + Into<Dim>],
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) {
        self.node(op, inputs, attributes, &[name.into()]);
        self.output(name, shape);
    }

    pub fn ops(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
        results: usize,
    ) -> Vec<Name> {
        let outputs: Vec<Name> = (0..results).map(|_| self.fresh(&op.to_lowercase())).collect();
        self.node(op, inputs, attributes, &outputs);
        outputs
    }

    fn node(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
        outputs: &[Name],
    ) {
        let mut node = inputs.iter().fold(Message::default(), |m, i| m.text(1, i));
        node = outputs.iter().fold(node, |m, o| m.text(2, o));
        node = node.text(3, &format!("/{op}_{}", outputs[0])).text(4, op);
        node = attributes.iter().fold(node, |m, (name, value)| m.nested(5, &value.message(name)));
        self.graph.add(1, &node.into_bytes());
    }

    fn initializer(&mut self, elem: ElemType, dims: &[usize], raw: &[u8]) -> Name {
        let name = self.fresh("w");
        let message = tensor(&name, elem, dims, raw);
        self.graph.add(5, &message.into_bytes());
        name
    }

    pub fn ints(&mut self, values: &[i64]) -> Name {
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.initializer(ElemType::I64, &[values.len()], &raw)
    }

    /// An index without axes: `Gather` then takes its axis away.
    pub fn index(&mut self, value: i64) -> Name {
        self.initializer(ElemType::I64, &[], &value.to_le_bytes())
    }

    /// A constant of the type of the weights.
    pub fn scalar(&mut self, value: f32) -> Name {
        self.floats(&[], std::iter::once(value))
    }

    /// Constants that are no parameters, of the type of the weights.
    pub fn floats(&mut self, dims: &[usize], values: impl Iterator<Item = f32>) -> Name {
        let mut raw = Vec::with_capacity(4 * dims.iter().product::<usize>());
        match self.floats {
            ElemType::F16 => values.for_each(|v| raw.extend(f16::from_f32(v).to_le_bytes())),
            _ => values.for_each(|v| raw.extend(v.to_le_bytes())),
        }
        self.initializer(self.floats, dims, &raw)
    }

    /// A constant of 32 bits, whatever the type of the weights.
    pub fn wide_scalar(&mut self, value: f32) -> Name {
        self.initializer(ElemType::F32, &[], &value.to_le_bytes())
    }

    /// The zero point of a quantised tensor.
    pub fn zero_point(&mut self, value: i8) -> Name {
        self.initializer(ElemType::I8, &[], &value.to_le_bytes())
    }

    /// A weight in bytes of every value but -128, and the scale that gives it the variance
    /// `gain / fan_in`.
    pub fn quantised_weight(&mut self, dims: &[usize], fan_in: usize, gain: f32) -> (Name, Name) {
        let n: usize = dims.iter().product();
        let raw: Vec<u8> =
            (0..n).map(|_| ((self.random.unit() * 255.0) as i16 - 127) as i8 as u8).collect();
        self.parameters += n;
        let scale = (3.0 * gain / fan_in as f32).sqrt() / 127.0;
        (self.initializer(ElemType::I8, dims, &raw), self.wide_scalar(scale))
    }

    pub fn bools(&mut self, dims: &[usize], values: &[bool]) -> Name {
        let raw: Vec<u8> = values.iter().map(|&b| u8::from(b)).collect();
        self.initializer(ElemType::Bool, dims, &raw)
    }

    /// Parameters with uniform values in `low..high`.
    pub fn uniform(&mut self, dims: &[usize], low: f32, high: f32) -> Name {
        self.parameters += dims.iter().product::<usize>();
        self.statistic(dims, low, high)
    }

    /// Uniform values in `low..high` that are no parameters.
    pub fn statistic(&mut self, dims: &[usize], low: f32, high: f32) -> Name {
        let n: usize = dims.iter().product();
        let mut random = std::mem::replace(&mut self.random, Random(0));
        let name = self.floats(dims, (0..n).map(|_| low + (high - low) * random.unit()));
        self.random = random;
        name
    }

    /// Weights of variance `gain / fan_in` (He's initialisation for `gain` 2).
    pub fn weight(&mut self, dims: &[usize], fan_in: usize, gain: f32) -> Name {
        let bound = (3.0 * gain / fan_in as f32).sqrt();
        self.uniform(dims, -bound, bound)
    }
}

/// A 64-bit linear congruential generator with an output permutation: portable and fast.
struct Random(u64);

impl Random {
    /// Uniform in `0..1` with 24 bits.
    fn unit(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as f32 / (1u32 << 24) as f32
    }
}
