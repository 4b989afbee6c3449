//! Changes to links and hosts that a lab plans.

/// A change to a link or a host at a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// A link fails.
    Down {
        /// Number of the link in the topology.
        link: u32,
    },
    /// A link works again.
    Up {
        /// Number of the link in the topology.
        link: u32,
    },
    /// A host pauses a priority, in addition to those that the network pauses.
    Pause {
        /// The host.
        host: u32,
        /// 0 to 7.
        priority: u8,
    },
    /// A host pauses a priority only if the network does.
    Resume {
        /// The host.
        host: u32,
        /// 0 to 7.
        priority: u8,
    },
}

impl Plan {
    /// Returns whether both concern the same link, or the same priority of the same host.
    pub(super) fn is_about_the_same(self, other: Plan) -> bool {
        let subject = |plan| match plan {
            Plan::Down { link } | Plan::Up { link } => (link, None),
            Plan::Pause { host, priority } | Plan::Resume { host, priority } => (host, Some(priority)),
        };
        subject(self) == subject(other)
    }
}
