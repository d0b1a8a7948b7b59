//! One file per family of networks; [`layers`] holds what they share.

mod dcgan;
mod inception;
pub(crate) mod layers;
mod lstm;
mod mlp;
mod mobilenet;
mod resnet;
mod transformer;
mod vgg;

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
];
