//! The order of the loops around a register tile, which are fused into one parallel loop.
//!
//! ```text
//! fixed axes, panels, free axes, uppers                     a panel stays in the cache while rows stream by
//! fixed axes, blocks of rows, panels, free axes, uppers     .. for some of the rows at a time
//! fixed axes, free axes, uppers, panels                     rows stay in the cache while panels stream by
//! ```

use ansc_graph::Expr;

use super::Tiling;
use crate::default::build::Builder;
use crate::default::knobs::Knob;

/// Parallel iterations below which the row axis is shared among threads as well.
const FEW_ITERATIONS: usize = 24;

/// What a loop runs over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Spatial axes along which panels vary.
    Fixed,
    /// Panels of columns.
    Panel,
    /// Spatial axes along which they do not.
    Free,
    /// Tiles along the upper axis.
    Upper,
    /// Blocks of tiles of rows.
    Block,
}

/// Roles and extents, outermost first.
pub(super) struct Order(Vec<(Role, usize)>);

impl Order {
    /// For so many panels and tiles along the upper axis.
    pub(super) fn of(b: &Builder<'_>, t: &Tiling, panels: usize, uppers: usize) -> Order {
        let shape = &b.compute.stages[t.reduction].ty.shape;
        let of = |role, axes: &[usize]| axes.iter().map(|&a| (role, shape[a])).collect::<Vec<_>>();
        let fixed = of(Role::Fixed, &t.fixed);
        let rows = [of(Role::Free, &t.free), vec![(Role::Upper, uppers)]].concat();
        let panels = vec![(Role::Panel, panels)];
        let has_rows = rows.iter().any(|(_, extent)| *extent > 1);
        let inside = has_rows && panels[0].1 > 1 && b.knobs.get(Knob::PanelsInside) == 1;
        Order(if inside { [fixed, rows, panels] } else { [fixed, panels, rows] }.concat())
    }

    /// Makes room for a loop over blocks of `wanted` tiles of rows, of which there are `tiles`; where nothing is
    /// wanted and there would be few iterations, of one tile. Returns the tiles of a block, 0 for no blocks.
    pub(super) fn block(&mut self, wanted: usize, tiles: usize) -> usize {
        if wanted > 0 && tiles > wanted {
            let at = self.0.iter().position(|(role, _)| *role != Role::Fixed).unwrap_or(0);
            self.0.insert(at, (Role::Block, 1));
            return wanted;
        }
        self.0.push((Role::Block, 1));
        let iterations: usize = self.extents().iter().product();
        usize::from(iterations < FEW_ITERATIONS && tiles > 1)
    }

    pub(super) fn set(&mut self, role: Role, extent: usize) {
        self.0.iter_mut().filter(|(r, _)| *r == role).for_each(|entry| entry.1 = extent);
    }

    pub(super) fn extents(&self) -> Vec<usize> {
        self.0.iter().map(|(_, extent)| *extent).collect()
    }

    pub(super) fn indices<'a>(
        &'a self,
        role: Role,
        indices: &'a [Expr],
    ) -> impl Iterator<Item = &'a Expr> {
        self.0.iter().zip(indices).filter(move |((r, _), _)| *r == role).map(|(_, index)| index)
    }

    /// The index of a role that has one loop.
    pub(super) fn index(&self, role: Role, indices: &[Expr]) -> Expr {
        self.indices(role, indices).next().cloned().unwrap_or_else(|| Expr::int(0))
    }
}
