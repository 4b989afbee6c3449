//! Configuration of the switches of a network: those of this crate with their parameters, or custom ones.

use std::fmt;
use std::sync::Arc;

use super::{BreakerConfig, EscapeConfig};
use super::{
    InputQueued, InputQueuedConfig, OutputQueued, OutputQueuedConfig, PolicySwitch, SharedBuffer, SharedBufferConfig,
    Switch, Trimming, TrimmingConfig,
};
use crate::network::{CreditConfig, Port};

/// Builds switches. Closures are factories.
pub trait SwitchFactory: Send + Sync {
    /// Builds the switch of `node`, numbered as in the topology, with these ports. Switches of one network may differ.
    fn build(&self, node: u32, ports: &[Port]) -> Box<dyn Switch>;
}

impl<F: Fn(u32, &[Port]) -> Box<dyn Switch> + Send + Sync> SwitchFactory for F {
    fn build(&self, node: u32, ports: &[Port]) -> Box<dyn Switch> {
        self(node, ports)
    }
}

/// A factory of switches, shared by all runs that use it. Two are equal if they are the same object.
#[derive(Clone)]
pub struct CustomSwitch(Arc<dyn SwitchFactory>);

impl CustomSwitch {
    /// Shares a factory.
    pub fn new(factory: impl SwitchFactory + 'static) -> CustomSwitch {
        CustomSwitch(Arc::new(factory))
    }
}

impl PartialEq for CustomSwitch {
    fn eq(&self, other: &CustomSwitch) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CustomSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomSwitch")
    }
}

/// The type of switch, with its parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SwitchConfig {
    /// A buffer for each input: [`InputQueued`].
    InputQueued(InputQueuedConfig),
    /// One buffer for all: [`SharedBuffer`].
    SharedBuffer(SharedBufferConfig),
    /// Payloads are cut off where there is no room: [`Trimming`].
    Trimming(TrimmingConfig),
    /// A buffer for each output, and an order in which it sends: [`OutputQueued`].
    OutputQueued(OutputQueuedConfig),
    /// A policy: [`PolicySwitch`].
    Policy(PolicySwitch),
    /// A custom switch: [`SwitchConfig::custom`].
    Custom(CustomSwitch),
}

/// Countermeasures against head-of-line blocking by PFC, and the deadlocks it causes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HolConfig {
    /// Blocked frames whose next hop is open leave their queues ([`EscapeConfig`]).
    Escape(EscapeConfig),
    /// Loops of ports that wait for each other are found and broken ([`BreakerConfig`]).
    Breaker(BreakerConfig),
}

impl HolConfig {
    /// Bytes that each input needs in addition to the headroom of PFC, for frames of at most `longest` bytes on the
    /// wire: for what arrives in spite of XOFF.
    pub fn margin(&self, longest: u32) -> u64 {
        match self {
            HolConfig::Escape(escape) => escape.margin(longest),
            HolConfig::Breaker(breaker) => breaker.margin(longest),
        }
    }
}

impl SwitchConfig {
    /// A custom switch. The closure takes the node's number and its ports: `SwitchConfig::custom(|_, ports|
    /// Box::new(MySwitch::new(ports.len())))`.
    pub fn custom<F>(factory: F) -> SwitchConfig
    where
        F: Fn(u32, &[Port]) -> Box<dyn Switch> + Send + Sync + 'static,
    {
        SwitchConfig::Custom(CustomSwitch::new(factory))
    }

    /// Returns the credits that the switches grant to each neighbour, if neighbours send on credit only.
    pub fn credits(&self) -> Option<CreditConfig> {
        match self {
            SwitchConfig::InputQueued(config) => config.credits,
            _ => None,
        }
    }

    /// Whether these switches interrupt packets ([`super::OutputQueuedConfig::preempts`]).
    pub(crate) fn preempts(&self) -> bool {
        matches!(self, SwitchConfig::OutputQueued(config) if config.preempts)
    }

    /// Builds the switch of `node` with these ports.
    pub fn build(&self, node: u32, ports: &[Port]) -> Box<dyn Switch> {
        match self {
            SwitchConfig::InputQueued(config) => Box::new(InputQueued::new(config, ports)),
            SwitchConfig::SharedBuffer(config) => Box::new(SharedBuffer::new(config, ports)),
            SwitchConfig::Trimming(config) => Box::new(Trimming::new(config, ports)),
            SwitchConfig::OutputQueued(config) => Box::new(OutputQueued::new(config, ports)),
            SwitchConfig::Policy(policy) => policy.build(ports),
            SwitchConfig::Custom(CustomSwitch(factory)) => factory.build(node, ports),
        }
    }
}
