//! Compiled programs against references. One binary, since linking LLVM takes a while.

mod ahead;
mod amx;
mod artifact;
mod basics;
mod check;
mod code_hash;
mod dot4;
mod dot_bf16;
mod elementwise;
mod gpu;
mod guards;
mod kernel;
mod late;
mod math;
mod mma;
mod narrow;
mod ptxas;
mod random_tiles;
mod stream;
mod tables;
mod tiles;
mod twins;
