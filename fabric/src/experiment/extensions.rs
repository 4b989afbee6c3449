//! Congestion control and switches made outside of irnic, by name.

use irnic_transports::congestion::ControllerFactory;

use crate::switch::CustomSwitch;

/// Algorithms and switches made outside of irnic, by the names that the keys `cc` and `switch` then accept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extensions {
    controllers: Vec<&'static dyn ControllerFactory>,
    switches: Vec<NamedSwitch>,
}

/// A switch made outside of irnic.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSwitch {
    /// The value of the key `switch`.
    pub name: &'static str,
    /// The switch.
    pub switch: CustomSwitch,
}

impl Extensions {
    /// Returns an empty set.
    pub fn new() -> Extensions {
        Extensions::default()
    }

    /// Adds congestion control, by the name that the factory has.
    #[must_use]
    pub fn with_controller(mut self, factory: &'static dyn ControllerFactory) -> Extensions {
        self.controllers.push(factory);
        self
    }

    /// Adds a switch. Keys that configure irnic's own switches, such as `buffer` and `pfc`, have no effect on it.
    #[must_use]
    pub fn with_switch(mut self, name: &'static str, switch: CustomSwitch) -> Extensions {
        self.switches.push(NamedSwitch { name, switch });
        self
    }

    /// Returns the algorithm with a name.
    pub(super) fn controller(&self, name: &str) -> Option<&'static dyn ControllerFactory> {
        self.controllers.iter().copied().find(|factory| factory.name() == name)
    }

    /// Returns the switch with a name.
    pub(super) fn switch(&self, name: &str) -> Option<&NamedSwitch> {
        self.switches.iter().find(|switch| switch.name == name)
    }
}
