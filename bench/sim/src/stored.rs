//! Storage format of flows and samples of a run: rows of numbers, of which there are many.

/// Flows, with their records.
pub mod flows {
    use irnic_fabric::sim::FlowRecord;
    use irnic_fabric::workload::Flow;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Source, destination, bytes, start, priority, class, setup; delivered, acknowledged, ideal, retransmitted,
    /// timeouts, start of the request, time to set up the connection.
    type Row = (u32, u32, u64, u64, u8, u8, u16, Option<u64>, Option<u64>, u64, u64, u64, (Option<u64>, u64));

    pub fn serialize<S: Serializer>(flows: &[(Flow, FlowRecord)], to: S) -> Result<S::Ok, S::Error> {
        let row = |(f, r): &(Flow, FlowRecord)| -> Row {
            let Flow { src, dst, bytes, start, priority, class, setup } = *f;
            let FlowRecord { delivered, acknowledged, ideal, retransmitted, timeouts, called, setup: connecting } = *r;
            (
                src,
                dst,
                bytes,
                start,
                priority,
                class,
                setup,
                delivered,
                acknowledged,
                ideal,
                retransmitted,
                timeouts,
                (called, connecting),
            )
        };
        to.collect_seq(flows.iter().map(row))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(Flow, FlowRecord)>, D::Error> {
        let flow = |row: Row| {
            let (src, dst, bytes, start, priority, class, setup, ..) = row;
            let (.., delivered, acknowledged, ideal, retransmitted, timeouts, (called, connecting)) = row;
            let record =
                FlowRecord { delivered, acknowledged, ideal, retransmitted, timeouts, called, setup: connecting };
            (Flow { src, dst, bytes, start, priority, class, setup }, record)
        };
        Ok(Vec::<Row>::deserialize(from)?.into_iter().map(flow).collect())
    }
}

/// Samples of the network.
pub mod samples {
    use irnic_fabric::sim::Sample;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Time, buffered, longest, stopped, delivered, placed, active.
    type Row = (u64, u64, u64, u32, u64, u64, u32);

    pub fn serialize<S: Serializer>(samples: &[Sample], to: S) -> Result<S::Ok, S::Error> {
        let row = |s: &Sample| -> Row {
            let Sample { at, buffered, longest, stopped, delivered, placed, active } = *s;
            (at, buffered, longest, stopped, delivered, placed, active)
        };
        to.collect_seq(samples.iter().map(row))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Sample>, D::Error> {
        let sample = |(at, buffered, longest, stopped, delivered, placed, active): Row| Sample {
            at,
            buffered,
            longest,
            stopped,
            delivered,
            placed,
            active,
        };
        Ok(Vec::<Row>::deserialize(from)?.into_iter().map(sample).collect())
    }
}
