//! Controllers outside this crate.

use std::fmt;

use super::{Controller, Line};

/// Creates the controllers of an algorithm outside this crate, for
/// [`CongestionConfig::Custom`](super::CongestionConfig::Custom). The factory holds the algorithm's parameters. It has
/// static lifetime, so that a configuration stays a plain value: a `static`, or a leaked box for parameters that are
/// known at run time only.
///
/// The [module](super) has a complete example.
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// Returns the name of the algorithm as displayed by configurations. Two configurations are equal if they refer to
    /// the same factory and it has the same name.
    fn name(&self) -> &'static str;

    /// Creates the controller of a queue pair, as the queue pair enters RTS.
    fn build(&self, line: &Line) -> Box<dyn CustomController>;

    /// Returns whether packets are sent as ECN-capable, so that switches mark them instead of dropping them. Defaults
    /// to false.
    fn uses_ecn(&self) -> bool {
        false
    }

    /// Returns whether packets are sent with telemetry for switches of a simulated network to fill in. Defaults to
    /// false.
    fn uses_telemetry(&self) -> bool {
        false
    }

    /// Returns whether the rate is taken from notices of the switches of a simulated network. Defaults to false.
    fn uses_fair_rate(&self) -> bool {
        false
    }

    /// Returns the minimum interval between congestion notification packets from a receiver that sees marks, ns;
    /// `None`, the default, if it sends none.
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

/// A [`Controller`] that can be kept behind a pointer, implemented for every controller that is `Clone + Debug + Send +
/// 'static`.
pub trait CustomController: Controller + fmt::Debug + Send {
    /// Returns a boxed copy.
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
