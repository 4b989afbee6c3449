//! Reasons why the ends of connections do not hear each other, for users who asked for reasons (`--explain`): a packet
//! that is dropped fails no call, and a completion with an error says nothing more.

use irnic_transports::config::WireFormat;
use irnic_transports::qp::Counters;

use super::state::State;
use crate::config::DeviceConfig;
use crate::explain;

impl State {
    /// Prints why packets of the unit's queue pairs were dropped or not answered, if reasons are wanted.
    #[inline]
    pub(super) fn explain(&mut self) {
        if explain::is_wanted()
            && let Some(news) = self.unheard.take_news(self.nic_port.nic.counters())
        {
            let info = self.live.get();
            reasons(&info.name, &info.config, news).for_each(|why| explain::print_once(&why));
        }
    }
}

/// Which reasons a unit's counters give.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unheard {
    /// Requests were dropped whose sender has another wire format.
    other_transport: bool,
    /// A peer did not answer.
    silent: bool,
}

impl Unheard {
    /// Returns what the counters say that they have not said before, and keeps it for the next call.
    #[inline]
    fn take_news(&mut self, counters: &Counters) -> Option<Unheard> {
        let now = Unheard { other_transport: counters.rx_other_transport > 0, silent: counters.retry_exceeded_err > 0 };
        if *self == now {
            return None;
        }
        let before = std::mem::replace(self, now);
        Some(Unheard {
            other_transport: now.other_transport && !before.other_transport,
            silent: now.silent && !before.silent,
        })
    }
}

/// Returns the reasons for what has happened on a device.
#[cold]
fn reasons(name: &str, config: &DeviceConfig, news: Unheard) -> impl Iterator<Item = String> + use<> {
    let here = match config.transport.wire {
        WireFormat::Roce => "roce",
        WireFormat::Irn => "irn",
        WireFormat::Auto => "auto",
    };
    let other = news.other_transport.then(|| {
        format!(
            "{name} has dropped requests: their sender's wire format is irn, and {here} here; give both ends the same \
             transport (irnic run --transport), or auto"
        )
    });
    let silent = news.silent.then(|| {
        format!(
            "a queue pair of {name} ends with IBV_WC_RETRY_EXC_ERR (12): its peer does not answer. It has ended, cannot be \
             reached, or has another transport; here it is {here}: --explain at the peer reports packets that it drops"
        )
    });
    other.into_iter().chain(silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_both_ends() {
        let of = |transport: &str, counters: Counters| -> Vec<String> {
            let mut config = DeviceConfig::new("irnic0".into());
            config.transport = transport.parse().expect("a transport");
            Unheard::default()
                .take_news(&counters)
                .into_iter()
                .flat_map(|news| reasons("irnic0", &config, news))
                .collect()
        };
        assert!(of("irn", Counters::default()).is_empty());
        let dropped = Counters { rx_other_transport: 3, ..Counters::default() };
        assert!(of("roce", dropped)[0].contains("sender's wire format is irn, and roce here"));
        let silent = Counters { retry_exceeded_err: 1, ..Counters::default() };
        let found = of("roce", silent);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("IBV_WC_RETRY_EXC_ERR") && found[0].contains("here it is roce"), "{found:?}");
    }

    #[test]
    fn a_reason_is_put_into_words_once() {
        let mut unheard = Unheard::default();
        let mut counters = Counters::default();
        let both = Unheard { other_transport: true, silent: true };
        assert_eq!(unheard.take_news(&counters), None);
        counters.rx_other_transport = 3;
        assert_eq!(unheard.take_news(&counters), Some(Unheard { other_transport: true, silent: false }));
        counters.rx_other_transport = 4;
        assert_eq!(unheard.take_news(&counters), None, "more of the same");
        counters.retry_exceeded_err = 1;
        assert_eq!(unheard.take_news(&counters), Some(Unheard { other_transport: false, silent: true }));
        assert_eq!((unheard.take_news(&counters), unheard), (None, both));
    }
}
