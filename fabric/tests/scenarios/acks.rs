//! Acknowledgements that plain RoCE requests.

use crate::kit::*;

#[test]
fn plain_roce_requests_acknowledgements_at_an_interval_and_for_the_last_packet() {
    // 40 packets, the last of which is one more beyond a multiple of 16 and of 7.
    for (transport, acks) in
        [("roce", 3), ("roce,ack-every=7", 6), ("roce,ack-every=1", 40), ("roce,ack-every=none", 1)]
    {
        let outcome = complete(config(star(&[40 * G; 2]), vec![flow(0, 1, 40)], deep()[0].clone(), transport));
        assert_eq!(outcome.nics.sent_acks, acks, "{transport}");
    }
}
