//! One file per family of networks; [`layers`] and [`attention`] hold what they share.

mod attention;
mod convnext;
mod dcgan;
mod deeplab;
mod densenet;
mod efficientnet;
mod inception;
pub(crate) mod layers;
mod llama;
mod lstm;
mod minilm;
mod mlp;
mod mobilenet;
mod mobilevit;
mod resnet;
mod shufflenet;
mod swin;
#[cfg(test)]
mod tests;
mod transformer;
mod unet;
mod vgg;
mod vit;
mod wav2vec;
mod yolo;

use crate::{Builder, Generator, Kind};

const fn network(
    name: &'static str,
    description: &'static str,
    make: fn(&mut Builder),
) -> Generator {
    Generator { name, description, kind: Kind::Network, make }
}

pub(crate) const NETWORKS: &[Generator] = &[
    network("resnet18", "ResNet-18, 1x3x224x224", resnet::resnet18),
    network("resnet50", "ResNet-50, 1x3x224x224", resnet::resnet50),
    network("mobilenet_v2", "MobileNet-v2, 1x3x224x224", mobilenet::mobilenet_v2),
    network("vgg16", "VGG-16, 1x3x224x224", vgg::vgg16),
    network(
        "inception_v1",
        "Inception-v1 (GoogLeNet) with batch normalisation, 1x3x224x224",
        inception::inception_v1,
    ),
    network("bert_base", "BERT-base encoder, sequence 128", transformer::bert_base),
    network("gpt2", "GPT-2 small without its language head, sequence 128", transformer::gpt2),
    network("dcgan", "DCGAN generator, 1x100x1x1 to 1x3x64x64", dcgan::dcgan),
    network("resnet3d_18", "3D-ResNet-18, 1x3x16x112x112", resnet::resnet3d_18),
    network("mlp", "four dense layers of 1024, batch 1", mlp::mlp),
    network("lstm_tagger", "bidirectional LSTM tagger, 32 tokens", lstm::lstm_tagger),
    network("shufflenet_v1", "ShuffleNet v1, 3 groups, 1x3x224x224", shufflenet::shufflenet_v1),
    network("shufflenet_v2", "ShuffleNet v2 1x, 1x3x224x224", shufflenet::shufflenet_v2),
    network("efficientnet_b0", "EfficientNet-B0, 1x3x224x224", efficientnet::efficientnet_b0),
    network("densenet121", "DenseNet-121, 1x3x224x224", densenet::densenet121),
    network("convnext_t", "ConvNeXt-T, 1x3x224x224", convnext::convnext_t),
    network("vit_b16", "ViT-B/16, 1x3x224x224", vit::vit_b16),
    network("swin_t", "Swin-T, 1x3x224x224", swin::swin_t),
    network("mobilevit_s", "MobileViT-S, 1x3x256x256", mobilevit::mobilevit_s),
    network(
        "deeplabv3_mobilenet_v3",
        "DeepLabV3 on MobileNetV3-Large, 21 classes, 1x3x512x512",
        deeplab::deeplabv3_mobilenet_v3,
    ),
    network("yolov8n", "YOLOv8n, boxes and 80 classes, 1x3x640x640", yolo::yolov8n),
    network("unet", "U-Net, 2 classes, 1x3x256x256", unet::unet),
    network("unet_fp16", "U-Net in half floats, 2 classes, 1x3x256x256", unet::unet_fp16),
    network("wav2vec2", "wav2vec 2.0 base encoder, one second of sound", wav2vec::wav2vec2),
    network(
        "llama_step",
        "4 of 22 layers of TinyLlama-1.1B, one token after 127",
        llama::llama_step,
    ),
    network("minilm", "MiniLM-L6 encoder, sequence 128", minilm::minilm),
    network(
        "minilm_int8",
        "MiniLM-L6 encoder with dynamic quantisation, sequence 128",
        minilm::minilm_int8,
    ),
];
