//! Forwarding of trait methods to a wrapped switch.

/// Forwards the given methods to the switch in a field: any of `enqueue`, `dequeue`, `backlog`, `on_control`,
/// `on_timer`, `extract`, `paused_upstreams`, `blocks`, `preempts`, `rank`, `delayed`, `prefetch`, `prefetch_output`,
/// `flush`. Methods neither written nor forwarded have the defaults of [`crate::switch::Switch`], which do nothing: a
/// wrapper around a switch that pauses its neighbours must forward `paused_upstreams` and `blocks`, or deadlocks are
/// not found. The trait must be in scope.
///
/// ```
/// use irnic_fabric::Priorities;
/// use irnic_fabric::network::PacketId;
/// use irnic_fabric::switch::{SharedBuffer, Switch, SwitchCtx, Verdict};
///
/// /// Takes slack off packets for each that waits before them, and is a [`SharedBuffer`] otherwise.
/// #[derive(Debug)]
/// struct Impatient {
///     inner: SharedBuffer,
/// }
///
/// impl Switch for Impatient {
///     fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
///         ctx.packets.get_mut(id).slack -= self.inner.backlog(output) as i64;
///         self.inner.enqueue(ctx, id, output)
///     }
///
///     irnic_fabric::forward_switch!(inner: dequeue, backlog, paused_upstreams, blocks, prefetch, flush);
/// }
/// ```
#[macro_export]
macro_rules! forward_switch {
    ($inner:tt: $($method:ident),+ $(,)?) => { $($crate::forward_switch!(@ $inner $method);)+ };
    (@ $inner:tt enqueue) => {
        $crate::delegate!((self.$inner): fn enqueue(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            id: $crate::network::PacketId,
            output: u16,
        ) -> $crate::switch::Verdict;);
    };
    (@ $inner:tt dequeue) => {
        $crate::delegate!((self.$inner): fn dequeue(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            paused: $crate::Priorities,
        ) -> $crate::switch::Dequeue;);
    };
    (@ $inner:tt backlog) => {
        $crate::delegate!((self.$inner): fn backlog(&self, output: u16) -> u64;);
    };
    (@ $inner:tt on_control) => {
        $crate::delegate!((self.$inner): fn on_control(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            port: u16,
            control: $crate::network::Control,
        ););
    };
    (@ $inner:tt on_timer) => {
        $crate::delegate!((self.$inner): fn on_timer(&mut self, ctx: &mut $crate::switch::SwitchCtx<'_>););
    };
    (@ $inner:tt paused_upstreams) => {
        $crate::delegate!((self.$inner): fn paused_upstreams(&self) -> Vec<(u16, u8)>;);
    };
    (@ $inner:tt blocks) => {
        $crate::delegate!((self.$inner): fn blocks(
            &self,
            packets: &$crate::network::Packets,
            input: u16,
            priority: u8,
            output: u16,
        ) -> bool;);
    };
    (@ $inner:tt extract) => {
        $crate::delegate!((self.$inner): fn extract(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            wanted: &mut dyn FnMut(&$crate::network::Packets, $crate::network::PacketId) -> bool,
        ) -> Option<$crate::network::PacketId>;);
    };
    (@ $inner:tt preempts) => {
        $crate::delegate!((self.$inner): fn preempts(&self) -> bool;);
    };
    (@ $inner:tt rank) => {
        $crate::delegate!((self.$inner): fn rank(
            &self,
            packets: &$crate::network::Packets,
            output: u16,
            paused: $crate::Priorities,
        ) -> Option<i64>;);
    };
    (@ $inner:tt delayed) => {
        $crate::delegate!((self.$inner): fn delayed(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            id: $crate::network::PacketId,
            by: u64,
        ););
    };
    (@ $inner:tt prefetch) => {
        $crate::delegate!((self.$inner): fn prefetch(
            &self,
            packets: &$crate::network::Packets,
            id: $crate::network::PacketId,
            input: u16,
            output: u16,
        ););
    };
    (@ $inner:tt prefetch_output) => {
        $crate::delegate!((self.$inner): fn prefetch_output(
            &self,
            packets: &$crate::network::Packets,
            output: u16,
            step: usize,
        ););
    };
    (@ $inner:tt flush) => {
        $crate::delegate!((self.$inner): fn flush(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            lost: &mut Vec<$crate::network::PacketId>,
        ););
    };
}
