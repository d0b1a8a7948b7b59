//! Parameters are as many as those of the published networks.

use super::NETWORKS;
use crate::{Model, Scale};

fn model(name: &str, scale: Scale) -> Model {
    let network = NETWORKS.iter().find(|g| g.name == name).expect("a network");
    network.build_at(scale)
}

/// The name, the number that its authors' or a framework's code has, and parts that this project
/// leaves out. Frameworks: torchvision, pytorchcv (ShuffleNet v1), timm (MobileViT-S),
/// ultralytics, transformers.
const PUBLISHED: [(&str, usize, usize); 17] = [
    ("resnet18", 11_689_512, 0),
    ("resnet50", 25_557_032, 0),
    ("mobilenet_v2", 3_504_872, 0),
    ("vgg16", 138_357_544, 0),
    ("shufflenet_v1", 1_865_728, 0),
    ("shufflenet_v2", 2_278_604, 0),
    ("efficientnet_b0", 5_288_548, 0),
    ("densenet121", 7_978_856, 0),
    ("convnext_t", 28_589_128, 0),
    ("vit_b16", 86_567_656, 0),
    ("swin_t", 28_288_354, 0),
    ("mobilevit_s", 5_578_632, 0),
    // An auxiliary classifier helps to train it: 3x3 from 40 to 10 channels, and 1x1 to the
    // classes.
    ("deeplabv3_mobilenet_v3", 11_029_328, 40 * 10 * 9 + 2 * 10 + 10 * 21 + 21),
    // The mask of pre-training, and the norms that weights of positions are divided by.
    ("wav2vec2", 94_371_712, 768 + 128),
    ("yolov8n", 3_157_184, 0),
    ("unet", 31_037_698, 0),
    // A pooler.
    ("minilm", 22_713_216, 384 * 384 + 384),
];

#[test]
fn parameters_are_as_many_as_published() {
    let wrong: Vec<String> = PUBLISHED
        .into_iter()
        .map(|(name, published, without)| {
            (name, published - without, model(name, Scale::Full).parameters())
        })
        .filter(|(_, expected, found)| expected != found)
        .map(|(name, expected, found)| format!("{name}: {found}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn other_precisions_have_the_same_parameters() {
    for (one, other) in [("unet", "unet_fp16"), ("minilm", "minilm_int8")] {
        let [one, other] = [one, other].map(|name| model(name, Scale::Full));
        assert_eq!(one.parameters(), other.parameters());
        assert!(one.to_bytes().len() > 18 * other.to_bytes().len() / 10);
    }
}

/// Four of 22 layers; the embedding, the head and what a layer has follow from the published sizes.
#[test]
fn a_step_of_tiny_llama_has_four_of_its_layers() {
    const PUBLISHED: usize = 1_100_048_384;
    let embedding_and_head = 2 * 32_000 * 2048;
    let layer = (PUBLISHED - embedding_and_head - 2048) / 22;
    assert_eq!(model("llama_step", Scale::Full).parameters(), 4 * layer + 2048);
}
