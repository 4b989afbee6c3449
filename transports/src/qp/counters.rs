//! Counters of a device. Names are those of the Linux rxe and mlx5 drivers where one exists; `irn_*` are irnic's own.

irnic_units::counters! {
    /// Counters of a queue pair since it was created; all start at 0 and wrap at 2⁶⁴.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct QpCounts {
        /// Packets sent.
        sent_pkts,
        /// Packets received in a state that accepts them.
        rcvd_pkts,
        /// Packets received without their payload, which a switch had cut off, and treated as lost.
        rx_trimmed,
        /// Retransmissions among the packets sent.
        retransmitted,
        /// Retransmission timeouts, in both roles.
        timeouts,
        /// RNR NAKs received.
        rnr_naks,
        /// Payload bytes sent, including retransmissions.
        sent_bytes,
        /// Payload bytes retransmitted, out of those sent.
        retransmitted_bytes,
        /// Payload bytes received and placed.
        rcvd_bytes,
    }
}

impl QpCounts {
    /// Returns the payload bytes sent, without retransmissions.
    pub fn sent_once(&self) -> u64 {
        self.sent_bytes.saturating_sub(self.retransmitted_bytes)
    }
}

irnic_units::counters! {
    /// Counters of a device; all start at 0 and wrap at 2⁶⁴.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct Counters {
        /// Packets sent, of all kinds (rxe).
        sent_pkts,
        /// Packets received that reached a QP (rxe).
        rcvd_pkts,
        /// Payload bytes sent.
        sent_bytes,
        /// Payload bytes received and placed.
        rcvd_bytes,
        /// Requests received again, all of whose packets had arrived before (rxe, mlx5).
        duplicate_request,
        /// Request packets received ahead of the expected PSN (rxe: out_of_seq_request; mlx5: out_of_sequence).
        out_of_seq_request,
        /// PSN sequence NAKs received (mlx5).
        packet_seq_err,
        /// READ responses received ahead of the expected one; plain RoCE takes each as an implied NAK (mlx5).
        implied_nak_seq_err,
        /// Retransmission timeouts (mlx5: local_ack_timeout_err).
        local_ack_timeout_err,
        /// Packets sent again (rxe: req_rexmt counts requests only).
        retransmitted_pkts,
        /// RNR NAKs sent, and messages of unreliable services dropped, for want of a receive WQE (rxe: send_rnr_err;
        /// mlx5: out_of_buffer).
        out_of_buffer,
        /// RNR NAKs received (mlx5: rnr_nak_retry_err).
        rnr_nak_retry_err,
        /// Packets received with congestion experienced (mlx5).
        np_ecn_marked_roce_packets,
        /// Congestion notification packets sent (mlx5).
        np_cnp_sent,
        /// Congestion notification packets received and heeded (mlx5).
        rp_cnp_handled,
        /// Congestion notification packets received by queue pairs without congestion control (mlx5).
        rp_cnp_ignored,
        /// QPs that gave up after too many RNR NAKs (rxe).
        rnr_retry_exceeded_err,
        /// QPs that gave up because the peer did not answer (rxe).
        retry_exceeded_err,
        /// Acknowledgements sent, ACK and NAK (rxe: ack_deferred counts other things).
        sent_acks,
        /// NAKs of errors sent: invalid request, access, operation (mlx5: resp_cqe_error counts their completions).
        resp_remote_errors,
        /// NAKs of errors received (mlx5: req_remote_access_errors and its siblings).
        req_remote_errors,
        /// Requests with RETH or AtomicETH that memory protection refused (mlx5: resp_remote_access_errors).
        resp_remote_access_errors,
        /// Local work requests that memory protection refused (mlx5: resp_local_length_error and its siblings).
        local_protection_errors,
        /// READ requests received, not counting duplicates (mlx5).
        rx_read_requests,
        /// WRITE requests received, not counting duplicates (mlx5).
        rx_write_requests,
        /// ATOMIC requests received, not counting duplicates (mlx5).
        rx_atomic_requests,
        /// Packets dropped before a QP saw them: no such QP, wrong state, P_Key or source (rxe: rx_drops).
        rx_dropped,
        /// Datagrams dropped because their Q_Key was wrong (IBA port counter QKey_Violations).
        bad_qkey,
        /// UC and UD: messages dropped because packets of theirs were lost (in a row: once), did not fit, or had no
        /// right there.
        rx_dropped_messages,
        /// Packets dropped because their ICRC was wrong (mlx5: rx_icrc_encapsulated).
        rx_icrc_encapsulated,
        /// Packets dropped because they could not be parsed.
        rx_malformed,
        /// Packets of a QP dropped because they make no sense in its state: a wrong format, an unknown acknowledgement.
        rx_unexpected,
        /// Requests among `rx_unexpected` in IRN's format at a QP of plain RoCE: the ends have different transports.
        rx_other_transport,
        /// IRN: packets placed ahead of the expected one.
        irn_ooo_placed,
        /// IRN: NACKs with a selective acknowledgement sent.
        irn_nacks_sent,
        /// IRN: NACKs with a selective acknowledgement received.
        irn_nacks_rcvd,
        /// IRN: packets ahead of the expected one dropped because placing them would be an error (§4.4.4).
        irn_ooo_dropped,
        /// IRN: read acknowledgements sent.
        irn_read_acks_sent,
        /// IRN: read acknowledgements received.
        irn_read_acks_rcvd,
        /// IRN: timeouts of the responder's READ response stream.
        irn_read_timeouts,
        /// IRN: timers extended from RTO_low to RTO_high.
        irn_timeouts_extended,
        /// Packets that a timeout or a tail loss probe sent again although they had arrived: the receiver has seen them
        /// twice, or going back N has found so (F-RTO).
        irn_spurious_timeouts,
        /// IRN: QPs that switched from plain RoCE to IRN (`transport = auto`).
        irn_upgrades,
        /// TLT: packets sent important, clocks included, acknowledgements not.
        tlt_important_pkts,
        /// TLT: echoes of important packets sent.
        tlt_echoes,
        /// TLT: important packets sent although nothing might be: clocks.
        tlt_clock_pkts,
        /// TLT: bytes of clocks, from the BTH to the ICRC.
        tlt_clock_bytes,
        /// TLT: packets that the echo of an important one showed to be lost.
        tlt_losses_found,
        /// Tail loss probes sent, new packets and old ones (RFC 8985 §7).
        tlp_probes,
        /// RC3: packets sent at low priority.
        rc3_low_pkts,
        /// RC3: packets known to have arrived, at low priority, before they were sent otherwise.
        rc3_low_acked,
        /// RC3: packets sent at low priority, and once more in their turn before they were known to have arrived.
        rc3_sent_twice,
        /// RC3: cumulative acknowledgements of more than was sent but at low priority ("ACK bump").
        rc3_ack_bumps,
        /// RC3: times that low priority, on its way from the end of what was posted, has met what is sent in its turn.
        rc3_crossings,
        /// Requests posted while one that they could overwrite was outstanding, for which they waited (`overlap =
        /// fence`).
        overlap_fences,
    }
}
