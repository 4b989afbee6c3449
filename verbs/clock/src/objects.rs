//! Where irnic's own objects, and the kernel's, are in this process.

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Begin and end of a mapped object.
struct Range(AtomicUsize, AtomicUsize);

impl Range {
    const fn none() -> Range {
        Range(AtomicUsize::new(0), AtomicUsize::new(0))
    }

    fn has(&self, address: usize) -> bool {
        (self.0.load(Ordering::Relaxed)..self.1.load(Ordering::Relaxed)).contains(&address)
    }
}

/// libirnic_verbs, libirnic_sysfs and this one.
static OWN: [Range; 4] = [const { Range::none() }; 4];
static VDSO: Range = Range::none();

/// Prefix of the file names of irnic's libraries.
const LIBRARIES: &[u8] = b"libirnic_";
const KERNEL: &[u8] = b"linux-vdso";

/// Returns whether an address is in one of irnic's libraries.
#[inline]
pub fn is_own(address: usize) -> bool {
    OWN.iter().any(|range| range.has(address))
}

/// Returns whether an address is in the kernel's object.
#[cfg(target_arch = "x86_64")]
pub fn is_vdso(address: usize) -> bool {
    VDSO.has(address)
}

/// Returns whether this process is irnic itself, whose ports need the machine's time.
pub fn is_irnic() -> bool {
    std::env::current_exe().is_ok_and(|program| program.file_name() == Some(Path::new("irnic").as_os_str()))
}

/// Finds the objects.
pub fn find() {
    let mut found = 0usize;
    // SAFETY: the callback has its type, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the C library passes a valid description of an object, with its program headers and its name.
    let (info, name) = unsafe { (&*info, CStr::from_ptr((*info).dlpi_name)) };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // SAFETY: `find` passes a number that only this function uses.
    let found = unsafe { &mut *data.cast::<usize>() };
    let range = if file.starts_with(LIBRARIES) && *found < OWN.len() {
        *found += 1;
        &OWN[*found - 1]
    } else if file.starts_with(KERNEL) {
        &VDSO
    } else {
        return 0;
    };
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let ends = loaded.clone().map(|header| (header.p_vaddr + header.p_memsz) as usize).max();
    let begins = loaded.map(|header| header.p_vaddr as usize).min();
    if let (Some(begins), Some(ends)) = (begins, ends) {
        let base = info.dlpi_addr as usize;
        range.0.store(base + begins, Ordering::Relaxed);
        range.1.store(base + ends, Ordering::Relaxed);
    }
    0
}
