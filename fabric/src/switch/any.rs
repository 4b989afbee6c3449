//! Any switch, for switches around switches whose kinds the compiler is to know.

use super::Switch;

/// A switch of whatever kind.
#[derive(Debug)]
pub(crate) struct Any(pub Box<dyn Switch>);

impl Switch for Any {
    crate::forward_switch!(
        0: enqueue, dequeue, backlog, on_control, on_timer, extract, paused_upstreams, blocks, prefetch, prefetch_output,
        flush
    );
}
