//! Plans with a hard-coded switch in this crate. A plan is known if it equals, but for names, the plan of a policy
//! shipped with irnic with the same parameters, whatever its text looks like; tests check each such switch against its
//! plan.

use irnic_openqueue::{Plan, Policy, Shipped};

use crate::network::Port;
use crate::switch::{
    Cut, Ecn, InputQueued, InputQueuedConfig, Scheduling, SharedBuffer, SharedBufferConfig, SharedPfc, Switch,
    Thresholds, Trimming, TrimmingConfig,
};

/// A hard-coded switch that does what a plan says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    InputQueued(InputQueuedConfig),
    SharedBuffer(SharedBufferConfig),
    Trimming(TrimmingConfig),
}

/// Parameter values of a policy.
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

impl Known {
    /// Builds the switch for packets of at most `longest` bytes on the wire, with these ports and number of priorities
    /// in use.
    pub(super) fn build(&self, ports: &[Port], longest: u32, priorities: u8) -> Box<dyn Switch> {
        match self {
            Known::InputQueued(config) => Box::new(InputQueued::new(config, ports)),
            Known::SharedBuffer(config) => {
                let mut config = config.clone();
                config.longest = longest;
                config.pfc.iter_mut().for_each(|pfc| pfc.priorities = priorities);
                Box::new(SharedBuffer::new(&config, ports))
            }
            Known::Trimming(config) => Box::new(Trimming::new(config, ports)),
        }
    }
}

/// The hard-coded switch equivalent to a plan of a policy, if there is one. What depends on packets is filled in by
/// [`Known::build`].
pub(super) fn switch(policy: &Policy, plan: &Plan) -> Option<Known> {
    let values = Values(policy.parameters());
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
    if is("trimming").is_some() {
        let cut = match (values.on("fifo")?, values.on("coin")?) {
            (true, _) => Cut::InPlace,
            (_, true) => Cut::Coin,
            (_, false) => Cut::Arriving,
        };
        return Some(Known::Trimming(TrimmingConfig {
            data: values.bytes("data")?,
            headers: values.bytes("headers")?,
            ratio: values.text("ratio")?.parse().ok()?,
            cut,
            returns: values.on("returns")?,
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
        priorities: 1,
    };
    Some(Known::SharedBuffer(SharedBufferConfig {
        buffer: values.bytes("buffer")?,
        alpha: values.share("alpha")?,
        pfc: values.on("pfc")?.then_some(pfc),
        gfc: None,
        longest: 0,
        colour: if values.on("colours")? { Some(values.bytes("threshold")?) } else { None },
        ecn: values.ecn()?,
        scheduling: values.scheduling()?,
        scheduler: None,
    }))
}
