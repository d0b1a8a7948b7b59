//! A trained model as a file.
//!
//! ```text
//! {"format":"ansc model 1","kind":"tlp","trained":{"dataset":"d","tasks":90,..},"about":{..},"numbers":66177,"seal":".."}
//! 66177 floats, little-endian
//! ```
//!
//! The first line says what it is and what it was trained on; `about` is the model's own: its
//! sizes, its vocabulary. Whatever is read from a file is checked.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::trees::TreesError;
use super::{Corrected, CostModel, Kind};

const FORMAT: &str = "ansc model 1";

/// All that a model has learned.
#[derive(Clone, PartialEq, Debug)]
pub struct Parts {
    /// Its sizes and words.
    pub about: Value,
    /// Its weights.
    pub numbers: Vec<f32>,
}

/// The data that a model was trained on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Trained {
    /// Where the samples came from.
    pub dataset: String,
    /// Tasks that it saw, held-out ones not counted.
    pub tasks: usize,
    /// Measured traces that it saw.
    pub traces: usize,
    /// The machines, that of the first labels first.
    pub platforms: Vec<String>,
    /// The seed of its first weights.
    pub seed: u64,
    /// The compiler that trained it.
    pub version: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    kind: String,
    trained: Trained,
    about: Value,
    /// How many follow.
    numbers: usize,
    /// The hash of the floats' bytes.
    seal: String,
}

/// Why a model cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The first line is no header.
    #[error("not a trained model, such as `ansc train` writes: {0}")]
    Header(String),
    /// The file is of another format.
    #[error("a trained model of format `{0}`, not `{FORMAT}`; train it again")]
    Format(String),
    /// This compiler has no such model.
    #[error("a trained model of the kind `{0}`, which this compiler does not know")]
    Kind(String),
    /// The model predicts something else than prices.
    #[error(
        "a trained model of the kind `{0}`, which corrects no prices; `ansc train -m corrected` does"
    )]
    NoPrices(String),
    /// The weights are cut off or damaged.
    #[error("the weights are not those that were written: the file is damaged or cut off")]
    Damaged,
    /// The weights do not make a model of this compiler.
    #[error("the trained model does not fit this compiler: {0}; train it again")]
    Unfit(String),
    /// The model cannot be saved.
    #[error("a model of the kind `{0}` that has learned nothing, or is not kept in files")]
    Nothing(String),
}

/// Writes a model, or nothing at all.
pub fn save(model: &dyn CostModel, trained: &Trained, to: &Path) -> Result<(), ModelFileError> {
    let kind = model.name().to_owned();
    let Some(Parts { about, numbers }) = model.parts() else {
        return Err(ModelFileError::Nothing(kind));
    };
    let floats: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
    let header = Header {
        format: FORMAT.into(),
        kind,
        trained: trained.clone(),
        about,
        numbers: numbers.len(),
        seal: seal(&floats),
    };
    let mut bytes = serde_json::to_vec(&header).expect("a header is plain data");
    bytes.push(b'\n');
    bytes.extend(floats);
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    io::Write::write_all(&mut file, &bytes)?;
    file.persist(to).map_err(|e| e.error)?;
    Ok(())
}

/// Reads a model that [`save`] wrote.
pub fn load(from: &Path) -> Result<(Box<dyn CostModel>, Trained), ModelFileError> {
    read(&fs::read(from)?)
}

/// Reads a model that corrects prices, from what [`save`] wrote.
pub fn prices(bytes: &[u8]) -> Result<(Corrected, Trained), ModelFileError> {
    let (header, numbers) = parse(bytes)?;
    if header.kind != Kind::CORRECTED.name() {
        return Err(ModelFileError::NoPrices(header.kind));
    }
    let model = Corrected::from_parts(&Parts { about: header.about, numbers })?;
    Ok((model, header.trained))
}

impl From<TreesError> for ModelFileError {
    fn from(error: TreesError) -> ModelFileError {
        ModelFileError::Unfit(error.to_string())
    }
}

fn read(bytes: &[u8]) -> Result<(Box<dyn CostModel>, Trained), ModelFileError> {
    let (Header { kind, trained, about, .. }, numbers) = parse(bytes)?;
    let known: Kind = kind.parse().map_err(|_| ModelFileError::Kind(kind))?;
    Ok((known.load(&Parts { about, numbers })?, trained))
}

/// The first line and the weights.
fn parse(bytes: &[u8]) -> Result<(Header, Vec<f32>), ModelFileError> {
    let end = bytes.iter().position(|b| *b == b'\n');
    let end = end.ok_or_else(|| ModelFileError::Header("it has no first line".into()))?;
    let (line, floats) = (&bytes[..end], &bytes[end + 1..]);
    let wrong = |e: serde_json::Error| ModelFileError::Header(e.to_string());
    let value: Value = serde_json::from_slice(line).map_err(wrong)?;
    match value.get("format").and_then(Value::as_str) {
        Some(FORMAT) => {}
        Some(other) => return Err(ModelFileError::Format(other.into())),
        None => return Err(ModelFileError::Header("its first line names no format".into())),
    }
    let header: Header = serde_json::from_value(value).map_err(wrong)?;
    let (each, rest) = floats.as_chunks::<4>();
    if !rest.is_empty() || each.len() != header.numbers || seal(floats) != header.seal {
        return Err(ModelFileError::Damaged);
    }
    let numbers: Vec<f32> = each.iter().map(|b| f32::from_le_bytes(*b)).collect();
    if !numbers.iter().all(|v| v.is_finite()) {
        return Err(ModelFileError::Unfit("a weight is no finite number".into()));
    }
    Ok((header, numbers))
}

fn seal(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{View, create, simulated};
    use super::*;

    #[test]
    fn models_are_the_same_after_saving_and_loading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.bin");
        let samples = simulated::samples(12, 0);
        let views: Vec<View<'_>> = samples.iter().map(|s| s.view()).collect();
        let trained = Trained { dataset: "d".into(), tasks: 5, ..Trained::default() };
        let trees = [Kind::HIST, Kind::CORRECTED];
        let networks = [Kind::MLP, Kind::TLP, Kind::MTL_TLP, Kind::TLP_PUBLISHED];
        for kind in trees.into_iter().chain(networks) {
            let (name, mut model) = (kind.name(), kind.create(0));
            assert!(matches!(save(&*model, &trained, &path), Err(ModelFileError::Nothing(_))));
            model.train(&samples);
            save(&*model, &trained, &path).unwrap();
            let (loaded, told) = load(&path).unwrap();
            assert_eq!((loaded.name(), &told), (name, &trained));
            assert_eq!(loaded.predict(&views), model.predict(&views), "{name}");
            assert!(model.predict(&views).iter().any(|s| *s != 0.0), "{name}");
        }
        let random = create("random", 0).unwrap();
        assert!(matches!(save(&*random, &trained, &path), Err(ModelFileError::Nothing(_))));
    }

    #[test]
    fn damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.bin");
        let mut model = create("mlp", 0).unwrap();
        model.train(&simulated::samples(6, 0));
        save(&*model, &Trained::default(), &path).unwrap();
        let good = fs::read(&path).unwrap();
        let told = |bytes: &[u8]| read(bytes).err().map(|e| e.to_string());
        assert_eq!(told(&good), None);
        let text = String::from_utf8_lossy(&good).into_owned();
        let line = text.lines().next().unwrap().to_owned();
        let cases: [(Vec<u8>, &str); 7] = [
            (good[..good.len() - 3].to_vec(), "the weights are not those that were written"),
            (good[..good.len() - 4].to_vec(), "the weights are not those that were written"),
            (vec![], "not a trained model"),
            (b"{}\n".to_vec(), "not a trained model"),
            (b"{\"format\":\"ansc hist 1\"}\n".to_vec(), "a trained model of format `ansc hist 1`"),
            (
                replaced(&good, &line, "\"kind\":\"mlp\"", "\"kind\":\"oracle\""),
                "a trained model of the kind `oracle`",
            ),
            (
                replaced(&good, &line, "\"hidden\":256", "\"hidden\":255"),
                "the trained model does not fit",
            ),
        ];
        for (bytes, expected) in cases {
            let found = told(&bytes).expect(expected);
            assert!(found.starts_with(expected), "{found}");
        }
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert!(told(&flipped).unwrap().contains("damaged"));
    }

    fn replaced(good: &[u8], line: &str, from: &str, to: &str) -> Vec<u8> {
        assert!(line.contains(from), "{line}");
        let mut bytes = line.replace(from, to).into_bytes();
        bytes.extend(&good[line.len()..]);
        bytes
    }
}
