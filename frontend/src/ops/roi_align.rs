//! `RoiAlign`.

use ansc_graph::ValueId;
use ansc_graph::op::Channels;
use ansc_graph::ops::roi_align::{RoiAttrs, roi_align};
use ansc_graph::ops::shape::transpose;

use super::OpEntry;
use super::indices::checked;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("RoiAlign", 10, import)];

/// Channels that fill a vector.
const MANY_CHANNELS: usize = 16;

fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let inputs = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
    let height = ctx.size(ctx.int("output_height", 1), "output height")?;
    let width = ctx.size(ctx.int("output_width", 1), "output width")?;
    let default = if ctx.opset() < 16 { "output_half_pixel" } else { "half_pixel" };
    let mut attrs = RoiAttrs {
        channels: Channels::First,
        output: [height, width],
        samples: ctx.size(ctx.int("sampling_ratio", 0), "sampling ratio")?,
        scale: ctx.float("spatial_scale", 1.0),
        half_pixel: match ctx.string("coordinate_transformation_mode", default).as_str() {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => return Err(ctx.problem(format!("coordinates `{other}` are not known"))),
        },
        max: match ctx.string("mode", "avg").as_str() {
            "avg" => false,
            "max" => true,
            other => return Err(ctx.problem(format!("mode `{other}` is not known"))),
        },
    };
    let [images, rois, image] = inputs;
    let ty = ctx.ty(images);
    ctx.check(ty.rank() == 4, || format!("its input must be images, not {ty}"))?;
    if ty.shape[1] >= MANY_CHANNELS {
        attrs.channels = Channels::Last;
    }
    let x = match attrs.channels {
        Channels::First => images,
        Channels::Last => ctx.emit1(transpose(&ty, &[0, 2, 3, 1]), &[images])?,
    };
    let op = roi_align(attrs, &ctx.ty(x), &ctx.ty(rois), &ctx.ty(image));
    if op.is_ok() {
        checked(ctx, image, &[ty.shape[0]])?;
    }
    let y = ctx.emit1(op, &[x, rois, image])?;
    match attrs.channels {
        Channels::First => Ok(vec![y]),
        Channels::Last => ctx.emit(transpose(&ctx.ty(y), &[0, 3, 1, 2]), &[y]),
    }
}
