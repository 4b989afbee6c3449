//! Forwarding of trait methods to a wrapped switch.

/// Forwards the given methods to the switch in a field: any of `enqueue`, `dequeue`, `backlog`, `on_control`,
/// `on_timer`, `extract`, `paused_upstreams`, `blocks`, `preempts`, `rank`, `delayed`, `prefetch`, `prefetch_output`,
/// `flush`. Methods neither written nor forwarded have the defaults of [`crate::switch::Switch`], which do nothing: a
/// wrapper around a switch that pauses its neighbours must forward `paused_upstreams` and `blocks`, or deadlocks are
/// not found.
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
        fn enqueue(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            id: $crate::network::PacketId,
            output: u16,
        ) -> $crate::switch::Verdict {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.enqueue(ctx, id, output)
        }
    };
    (@ $inner:tt dequeue) => {
        fn dequeue(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            paused: $crate::Priorities,
        ) -> $crate::switch::Dequeue {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.dequeue(ctx, output, paused)
        }
    };
    (@ $inner:tt backlog) => {
        fn backlog(&self, output: u16) -> u64 {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.backlog(output)
        }
    };
    (@ $inner:tt on_control) => {
        fn on_control(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            port: u16,
            control: $crate::network::Control,
        ) {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.on_control(ctx, port, control);
        }
    };
    (@ $inner:tt on_timer) => {
        fn on_timer(&mut self, ctx: &mut $crate::switch::SwitchCtx<'_>) {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.on_timer(ctx);
        }
    };
    (@ $inner:tt paused_upstreams) => {
        fn paused_upstreams(&self) -> Vec<(u16, u8)> {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.paused_upstreams()
        }
    };
    (@ $inner:tt blocks) => {
        fn blocks(&self, packets: &$crate::network::Packets, input: u16, priority: u8, output: u16) -> bool {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.blocks(packets, input, priority, output)
        }
    };
    (@ $inner:tt extract) => {
        fn extract(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            wanted: &mut dyn FnMut(&$crate::network::Packets, $crate::network::PacketId) -> bool,
        ) -> Option<$crate::network::PacketId> {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.extract(ctx, output, wanted)
        }
    };
    (@ $inner:tt preempts) => {
        fn preempts(&self) -> bool {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.preempts()
        }
    };
    (@ $inner:tt rank) => {
        fn rank(
            &self,
            packets: &$crate::network::Packets,
            output: u16,
            paused: $crate::Priorities,
        ) -> Option<i64> {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.rank(packets, output, paused)
        }
    };
    (@ $inner:tt delayed) => {
        fn delayed(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            id: $crate::network::PacketId,
            by: u64,
        ) {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.delayed(ctx, output, id, by);
        }
    };
    (@ $inner:tt prefetch) => {
        fn prefetch(
            &self,
            packets: &$crate::network::Packets,
            id: $crate::network::PacketId,
            input: u16,
            output: u16,
        ) {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.prefetch(packets, id, input, output);
        }
    };
    (@ $inner:tt prefetch_output) => {
        fn prefetch_output(&self, packets: &$crate::network::Packets, output: u16, step: usize) {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.prefetch_output(packets, output, step);
        }
    };
    (@ $inner:tt flush) => {
        fn flush(
            &mut self,
            ctx: &mut $crate::switch::SwitchCtx<'_>,
            output: u16,
            lost: &mut Vec<$crate::network::PacketId>,
        ) {
            #[allow(unused_imports)]
            use $crate::switch::Switch as _;
            self.$inner.flush(ctx, output, lost);
        }
    };
}
