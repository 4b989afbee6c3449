//! Plans that a switch of this crate runs by heart. A plan is known if it is, but for names, the plan of a policy that
//! comes with irnic with the same parameters, whatever its text looks like; tests hold each such switch against its plan.

use irnic_openqueue::{Plan, Policy, Shipped};

use super::PolicySwitch;
use crate::switch::{Ecn, InputQueuedConfig, Scheduling, SharedBufferConfig, SharedPfc, Thresholds};

/// A switch that does what a plan says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    InputQueued(InputQueuedConfig),
    SharedBuffer(SharedBufferConfig),
}

/// Values of the parameters of a policy.
struct Values(Vec<irnic_openqueue::Parameter>);

impl Values {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.value.as_str())
    }

    fn on(&self, name: &str) -> Option<bool> {
        self.text(name).map(|text| text == "on")
    }

    fn bytes(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn share(&self, name: &str) -> Option<f64> {
        irnic_units::quotient(self.text(name)?)
    }

    fn ecn(&self) -> Option<Ecn> {
        Some(match (self.on("step")?, self.on("red")?) {
            (false, false) => Ecn::Off,
            (true, false) => Ecn::Step { k: self.bytes("k")? },
            (_, true) => Ecn::Red { kmin: self.bytes("kmin")?, kmax: self.bytes("kmax")?, pmax: self.share("pmax")? },
        })
    }

    fn scheduling(&self) -> Option<Scheduling> {
        Some(if self.on("strict")? { Scheduling::Strict } else { Scheduling::RoundRobin })
    }
}

/// The switch that does what a plan of a policy says, if there is one.
pub(super) fn switch(switch: &PolicySwitch, plan: &Plan) -> Option<Known> {
    let values = Values(switch.policy().parameters());
    let is = |name: &str| {
        let mut policy: Policy = Shipped::named(name)?.text.parse().ok()?;
        let names: Vec<String> = policy.parameters().into_iter().map(|parameter| parameter.name).collect();
        for name in names {
            policy.set(&name, values.text(&name)?).ok()?;
        }
        policy.plan(plan.ports()).ok().filter(|known| known.does_as(plan))
    };
    if is("input-queued").is_some() {
        let pfc = Thresholds { xoff: values.bytes("xoff")?, xon: values.bytes("xon")? };
        return Some(Known::InputQueued(InputQueuedConfig {
            buffer: values.bytes("buffer")?,
            pfc: values.on("pfc")?.then_some(pfc),
            credits: None,
            ecn: values.ecn()?,
            scheduling: values.scheduling()?,
            speedup: None,
        }));
    }
    is("shared-buffer")?;
    let pfc = SharedPfc {
        alpha: values.share("pfc_alpha")?,
        fixed: None,
        margin: 0,
        reserve: values.bytes("reserve")?,
        resume: values.bytes("resume")?,
        headroom: None,
        priorities: switch.priorities(),
    };
    Some(Known::SharedBuffer(SharedBufferConfig {
        buffer: values.bytes("buffer")?,
        alpha: values.share("alpha")?,
        pfc: values.on("pfc")?.then_some(pfc),
        gfc: None,
        longest: switch.longest(),
        colour: if values.on("colours")? { Some(values.bytes("threshold")?) } else { None },
        ecn: values.ecn()?,
        scheduling: values.scheduling()?,
        scheduler: None,
    }))
}
