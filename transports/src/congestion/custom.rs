//! Controllers that are not part of this crate.

use std::fmt;

use super::{Controller, Line};

/// Makes the controllers of an algorithm that is not part of this crate: what
/// [`CongestionConfig::Custom`](super::CongestionConfig::Custom) refers to. The factory holds the algorithm's
/// parameters. It lives as long as the program, so that a configuration stays a plain value: a `static`, or a leaked
/// box for parameters that are known at run time only.
///
/// The [module](super) has a complete example.
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// Returns the name of the algorithm, by which configurations display it. Two configurations are equal if they
    /// refer to the same factory and it has the same name.
    fn name(&self) -> &'static str;

    /// Makes the controller of a queue pair, as the queue pair enters RTS.
    fn build(&self, line: &Line) -> Box<dyn CustomController>;

    /// Whether packets are sent as ECN-capable, so that switches mark them instead of dropping them. Not by default.
    fn uses_ecn(&self) -> bool {
        false
    }

    /// Whether packets are sent with telemetry for switches of a simulated network to write on. Not by default.
    fn uses_telemetry(&self) -> bool {
        false
    }

    /// Whether it takes its rate from notices of the switches of a simulated network. Not by default.
    fn uses_fair_rate(&self) -> bool {
        false
    }

    /// Returns how often a receiver that sees marks sends a congestion notification packet, ns; `None`, the default,
    /// for never.
    fn cnp_interval(&self) -> Option<u64> {
        None
    }
}

impl PartialEq for dyn ControllerFactory {
    fn eq(&self, other: &dyn ControllerFactory) -> bool {
        // Factories without fields may share an address.
        std::ptr::addr_eq(self, other) && self.name() == other.name()
    }
}

impl Eq for dyn ControllerFactory {}

/// A [`Controller`] that can be kept behind a pointer. Every controller that is `Clone + Debug + Send + 'static` is
/// one.
pub trait CustomController: Controller + fmt::Debug + Send {
    /// Returns a copy in a box of its own.
    fn boxed_clone(&self) -> Box<dyn CustomController>;
}

impl<C: Controller + Clone + fmt::Debug + Send + 'static> CustomController for C {
    fn boxed_clone(&self) -> Box<dyn CustomController> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn CustomController> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}
