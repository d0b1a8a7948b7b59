//! A model that is compiled for the shapes of each sample, and run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ansc_codegen::Target;
use ansc_frontend::ImportOptions;
use ansc_runtime::{Model, Precisions, Session, Tensor};
use tempfile::TempDir;

use crate::Error;
use crate::pipeline::{self, Options, Silent};
use crate::samples::Sample;

type Shapes = Vec<Vec<usize>>;

/// One form of a model.
pub(super) struct Runner {
    model: PathBuf,
    import: ImportOptions,
    precision: Precisions,
    folder: TempDir,
    sessions: BTreeMap<Shapes, (Model, Session)>,
}

impl Runner {
    pub(super) fn new(
        model: &Path,
        import: ImportOptions,
        precision: Precisions,
    ) -> Result<Runner, Error> {
        let folder = tempfile::tempdir().map_err(|e| Error::file(model, e))?;
        let model = model.to_path_buf();
        Ok(Runner { model, import, precision, folder, sessions: BTreeMap::new() })
    }

    /// The outputs by name; `more` are inputs that no sample has.
    pub(super) fn run(
        &mut self,
        sample: &Sample,
        more: &[(String, Tensor)],
    ) -> Result<BTreeMap<String, Tensor>, Error> {
        let of = |e: Error| Error::Data(format!("{}: {e}", sample.name));
        let shapes: Shapes = sample.inputs.values().map(|t| t.shape().to_vec()).collect();
        if !self.sessions.contains_key(&shapes) {
            let session = self.compile(sample).map_err(of)?;
            self.sessions.insert(shapes.clone(), session);
        }
        let (model, session) = self.sessions.get_mut(&shapes).expect("it was compiled just now");
        let known = |name: &str| model.inputs().iter().any(|port| port.name == name);
        let own = sample.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let more = more.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let given: Vec<(&str, &Tensor)> = own.chain(more).filter(|(n, _)| known(n)).collect();
        // Two models of one sample find the same random numbers.
        session.seed(0);
        let outputs = session.run(&given).map_err(|e| of(e.into()))?;
        Ok(outputs.into_iter().collect())
    }

    fn compile(&self, sample: &Sample) -> Result<(Model, Session), Error> {
        let mut import = self.import.clone();
        for (name, tensor) in &sample.inputs {
            if !import.values.contains_key(name) {
                import.shapes.insert(name.clone(), tensor.shape().to_vec());
            }
        }
        let options = Options {
            precision: self.precision.clone(),
            calibrated: true,
            verify: false,
            ..Options::new(import, Target::native()?)
        };
        let path = self.folder.path().join(format!("{}.ansc", self.sessions.len()));
        pipeline::compile(&self.model, &path, &options, &Silent)?;
        let model = Model::load(&path)?;
        let session = model.session()?;
        Ok((model, session))
    }

    /// The model that was compiled for a sample.
    pub(super) fn compiled(&mut self, sample: &Sample) -> Result<&mut (Model, Session), Error> {
        self.run(sample, &[])?;
        let shapes: Shapes = sample.inputs.values().map(|t| t.shape().to_vec()).collect();
        Ok(self.sessions.get_mut(&shapes).expect("it ran just now"))
    }
}
