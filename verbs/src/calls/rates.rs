//! Static rates: the meaning of `ibv_rate` values. IBA 14.2.5.6 defines the link speeds.

use std::ffi::c_int;

use crate::abi::consts::*;

/// Rate, multiple of 2.5 Gbit/s if there is one, Mbit/s.
const RATES: [(u32, Option<c_int>, c_int); 23] = [
    (IBV_RATE_2_5_GBPS, Some(1), 2_500),
    (IBV_RATE_5_GBPS, Some(2), 5_000),
    (IBV_RATE_10_GBPS, Some(4), 10_000),
    (IBV_RATE_20_GBPS, Some(8), 20_000),
    (IBV_RATE_30_GBPS, Some(12), 30_000),
    (IBV_RATE_40_GBPS, Some(16), 40_000),
    (IBV_RATE_60_GBPS, Some(24), 60_000),
    (IBV_RATE_80_GBPS, Some(32), 80_000),
    (IBV_RATE_120_GBPS, Some(48), 120_000),
    (IBV_RATE_14_GBPS, None, 14_062),
    (IBV_RATE_56_GBPS, None, 56_250),
    (IBV_RATE_112_GBPS, None, 112_500),
    (IBV_RATE_168_GBPS, None, 168_750),
    (IBV_RATE_25_GBPS, None, 25_781),
    (IBV_RATE_100_GBPS, None, 103_125),
    (IBV_RATE_200_GBPS, None, 206_250),
    (IBV_RATE_300_GBPS, None, 309_375),
    (IBV_RATE_28_GBPS, Some(11), 28_125),
    (IBV_RATE_50_GBPS, Some(20), 53_125),
    (IBV_RATE_400_GBPS, Some(160), 425_000),
    (IBV_RATE_600_GBPS, Some(240), 637_500),
    (IBV_RATE_800_GBPS, Some(320), 850_000),
    (IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

/// Returns a rate as a multiple of 2.5 Gbit/s, -1 for those without one in libibverbs.
pub extern "C" fn ibv_rate_to_mult(rate: u32) -> c_int {
    RATES.iter().find(|r| r.0 == rate).and_then(|r| r.1).unwrap_or(-1)
}

/// Returns the rate of a multiple of 2.5 Gbit/s, `IBV_RATE_MAX` if there is none.
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> u32 {
    RATES.iter().find(|r| r.1 == Some(mult)).map_or(IBV_RATE_MAX, |r| r.0)
}

/// Returns a rate in Mbit/s, -1 for an invalid value.
pub extern "C" fn ibv_rate_to_mbps(rate: u32) -> c_int {
    RATES.iter().find(|r| r.0 == rate).map_or(-1, |r| r.2)
}

/// Returns the rate of exactly this many Mbit/s, `IBV_RATE_MAX` if there is none.
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> u32 {
    RATES.iter().find(|r| r.2 == mbps).map_or(IBV_RATE_MAX, |r| r.0)
}
