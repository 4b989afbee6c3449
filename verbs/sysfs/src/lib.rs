//! For `LD_PRELOAD`: shows an application the files of an RDMA device that it looks for under /sys and /dev.
//!
//! The directory that `IRNIC_SYSFS` names stands in for /sys/class/infiniband and its siblings, for the directories
//! infiniband and infiniband_verbs of network interfaces, and for /dev/infiniband; what it has under /dev/infiniband is
//! shown as the character device /dev/null. All other paths, and all calls without that variable, go to the C library
//! as they are. `irnic run --sysfs` writes the directory. Counters are read when they are opened.
//!
//! Nothing here allocates or takes a lock: the functions are called from signal handlers and between fork and exec.

mod calls;
mod counters;
mod redirect;
