//! Reasons why the ends of connections do not hear each other, for users who asked for reasons (`--explain`): a packet
//! that is dropped fails no call, and a completion with an error says nothing more.

use irnic_transports::config::WireFormat;
use irnic_transports::qp::Counters;

use super::state::State;
use super::unit::Unit;
use crate::config::DeviceConfig;
use crate::explain;

impl Unit {
    /// Prints why packets of the unit's queue pairs were dropped or not answered, if reasons are wanted.
    #[inline]
    pub(super) fn explain(&self, state: &mut State) {
        if explain::is_wanted() {
            let info = self.info();
            reasons(&info.name, &info.config, state.nic().counters()).for_each(|why| explain::print_once(&why));
        }
    }
}

/// Returns reasons by counters of a device.
fn reasons(name: &str, config: &DeviceConfig, counters: &Counters) -> impl Iterator<Item = String> + use<> {
    let here = match config.transport.wire {
        WireFormat::Roce => "roce",
        WireFormat::Irn => "irn",
        WireFormat::Auto => "auto",
    };
    let other = (counters.rx_other_transport > 0).then(|| {
        format!(
            "{name} has dropped requests: their sender's wire format is irn, and {here} here; give both ends the same \
             transport (irnic run --transport), or auto"
        )
    });
    let silent = (counters.retry_exceeded_err > 0).then(|| {
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
            reasons("irnic0", &config, &counters).collect()
        };
        assert!(of("irn", Counters::default()).is_empty());
        let dropped = Counters { rx_other_transport: 3, ..Counters::default() };
        assert!(of("roce", dropped)[0].contains("sender's wire format is irn, and roce here"));
        let silent = Counters { retry_exceeded_err: 1, ..Counters::default() };
        let found = of("roce", silent);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("IBV_WC_RETRY_EXC_ERR") && found[0].contains("here it is roce"), "{found:?}");
    }
}
