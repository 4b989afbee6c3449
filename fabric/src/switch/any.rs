//! A boxed switch, for switch wrappers that are generic over the inner switch.

use super::Switch;

/// A switch of any type.
#[derive(Debug)]
pub(crate) struct Any(pub Box<dyn Switch>);

impl Switch for Any {
    crate::forward_switch!(
        0: enqueue, dequeue, backlog, on_control, on_timer, extract, paused_upstreams, blocks, prefetch, prefetch_output,
        flush
    );
}
