//! Redirects librdmacm's calls on `/dev/infiniband/rdma_cm` to this library through its own table of imported
//! functions.
//!
//! librdmacm opens the device with `open` and makes all requests with `write`. Before the first `open` it calls
//! `ibv_get_device_list`, which is this library's, so [`install`] is in time to redirect `open`, `fstat`, `write` and
//! `close` in librdmacm's global offset table. The application is not changed, other descriptors cost nothing, and it
//! works where a preload would not: under AddressSanitizer, with a library loaded by `dlopen`, together with
//! librspreload. A librdmacm that is linked statically into a program cannot be redirected.
//!
//! `ibv_create_ah` is redirected too: a datagram socket of rsockets addresses its own port by the port's LID alone,
//! without a GRH, which RoCE does not have. Such an address means the port here, and only here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{dl_phdr_info, mode_t, size_t, ssize_t};

use super::device;
use crate::abi::structs::{ibv_ah, ibv_ah_attr, ibv_pd};
use crate::errno::guard;
use crate::objects::Context;

/// The device opened by librdmacm.
const DEVICE: &CStr = c"/dev/infiniband/rdma_cm";
/// Prefix of the object's name, which tools that bundle libraries may extend.
const SONAME: &[u8] = b"librdmacm";

// elf(5).
const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_SONAME: u64 = 14;
const DT_JMPREL: u64 = 23;
/// Relocations for the address of a function: GLOB_DAT and JUMP_SLOT.
#[cfg(target_arch = "x86_64")]
const FUNCTIONS: [u32; 2] = [6, 7];
/// Relocations for the address of a function: GLOB_DAT and JUMP_SLOT.
#[cfg(target_arch = "aarch64")]
const FUNCTIONS: [u32; 2] = [1025, 1026];

#[repr(C)]
struct Dyn {
    tag: u64,
    value: u64,
}

#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    shndx: u16,
    value: u64,
    size: u64,
}

/// The type of `ibv_create_ah`.
type CreateAh = unsafe extern "C" fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;

/// This library's `ibv_create_ah`.
static CREATE_AH: OnceLock<CreateAh> = OnceLock::new();

/// Redirects the calls of every librdmacm that is loaded now. Those redirected before are unchanged. `create_ah` is
/// this library's `ibv_create_ah`.
pub(crate) fn install(create_ah: CreateAh) {
    CREATE_AH.get_or_init(|| create_ah);
    // SAFETY: the callback has the required type and uses its argument only during the call. The loader holds its lock:
    // no object is unloaded meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: size_t, _: *mut c_void) -> c_int {
    guard(0, || {
        // SAFETY: the loader describes a mapped object.
        unsafe { redirect(&*info) };
        0
    })
}

/// Contents of a dynamic section.
#[derive(Default)]
struct Dynamic {
    strings: u64,
    symbols: u64,
    soname: Option<u64>,
    /// Relocations: addresses and lengths in bytes, of the procedure linkage table and of the rest.
    tables: [(u64, u64); 2],
}

impl Dynamic {
    /// # Safety
    /// `base` and `at` are the load address of a mapped object and that of its dynamic section.
    unsafe fn read(base: u64, mut at: *const Dyn) -> Dynamic {
        let mut found = Dynamic::default();
        // The C library has added the load address; other libraries leave that to the reader.
        let address = |value: u64| if value < base { base + value } else { value };
        // SAFETY: the section ends with DT_NULL.
        unsafe {
            while (*at).tag != DT_NULL {
                let Dyn { tag, value } = *at;
                match tag {
                    DT_STRTAB => found.strings = address(value),
                    DT_SYMTAB => found.symbols = address(value),
                    DT_SONAME => found.soname = Some(value),
                    DT_JMPREL => found.tables[0].0 = address(value),
                    DT_PLTRELSZ => found.tables[0].1 = value,
                    DT_RELA => found.tables[1].0 = address(value),
                    DT_RELASZ => found.tables[1].1 = value,
                    _ => {}
                }
                at = at.add(1);
            }
        }
        found
    }

    /// # Safety
    /// The object is mapped, and `offset` is an offset into its string table.
    unsafe fn string(&self, offset: u64) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr((self.strings + offset) as *const c_char) }.to_bytes()
    }
}

/// Redirects the calls of an object if it is librdmacm.
///
/// # Safety
/// The object is mapped and stays mapped during the call.
unsafe fn redirect(info: &dl_phdr_info) {
    let base = info.dlpi_addr;
    if info.dlpi_phdr.is_null() {
        return;
    }
    // SAFETY: the loader provides their number.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return };
    // SAFETY: the header has the address of the section.
    let dynamic = unsafe { Dynamic::read(base, (base + dynamic.p_vaddr) as *const Dyn) };
    let Some(soname) = dynamic.soname.filter(|_| dynamic.strings != 0 && dynamic.symbols != 0) else { return };
    // SAFETY: the section has the offset of the name.
    if !unsafe { dynamic.string(soname) }.starts_with(SONAME) {
        return;
    }
    let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
    let sealed = relro.map(|header| base + header.p_vaddr..base + header.p_vaddr + header.p_memsz);
    for (table, len) in dynamic.tables.into_iter().filter(|(table, _)| *table != 0) {
        // SAFETY: the section has the address of the relocations and their length.
        let relocations = unsafe { std::slice::from_raw_parts(table as *const Rela, len as usize / size_of::<Rela>()) };
        for Rela { offset, info, .. } in relocations {
            if !FUNCTIONS.contains(&(*info as u32)) {
                continue;
            }
            // SAFETY: a relocation refers to a symbol of the table, and that to a string.
            let name = unsafe {
                let symbol = (dynamic.symbols as *const Sym).add((info >> 32) as usize);
                dynamic.string((*symbol).name.into())
            };
            if let Some(function) = replacement(name) {
                let slot = (base + offset) as *mut c_void;
                let writable = sealed.as_ref().is_none_or(|sealed| !sealed.contains(&(base + offset)));
                // SAFETY: a relocation of these kinds is the address of a word that holds a function pointer.
                unsafe { replace(slot.cast(), function, writable) };
            }
        }
    }
}

/// Returns the replacement of an imported function.
fn replacement(name: &[u8]) -> Option<*mut c_void> {
    Some(match name {
        b"open" | b"open64" => open as *mut c_void,
        b"fstat" | b"fstat64" => fstat as *mut c_void,
        b"write" => write as *mut c_void,
        b"close" => close as *mut c_void,
        b"ibv_create_ah" => create_ah as *mut c_void,
        _ => return None,
    })
}

/// Stores a function in a slot of a table that may be read-only.
///
/// # Safety
/// `slot` is a word of a global offset table.
unsafe fn replace(slot: *mut *mut c_void, function: *mut c_void, writable: bool) {
    // SAFETY: the caller's promise. Other threads that call through the slot meanwhile see one or the other.
    unsafe {
        let word = AtomicPtr::from_ptr(slot);
        if word.load(Ordering::Relaxed) == function {
            return;
        }
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = (slot as usize & !(page - 1)) as *mut c_void;
        // A word does not cross a page boundary.
        if writable || libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) == 0 {
            word.store(function, Ordering::Relaxed);
            if !writable {
                libc::mprotect(start, page, libc::PROT_READ);
            }
        }
    }
}

// The functions called by librdmacm. In C `open` is variadic: the mode is passed like a named argument.

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's path is a C string.
    if unsafe { CStr::from_ptr(path) } == DEVICE {
        return device::open(flags);
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::open(path, flags, mode) }
}

unsafe extern "C" fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { libc::fstat(fd, to) };
    if result == 0 && device::has(fd) {
        // SAFETY: the C library has just written it.
        let stat = unsafe { &mut *to };
        stat.st_mode = libc::S_IFCHR | 0o666;
        stat.st_rdev = kernel_number();
    }
    result
}

/// Returns the number of the kernel's own device, which librdmacm may have read from the kernel and then expects; 0 if
/// there is none.
fn kernel_number() -> libc::dev_t {
    let text = std::fs::read_to_string("/sys/class/misc/rdma_cm/dev").unwrap_or_default();
    let mut numbers = text.trim().split(':').filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => libc::makedev(major, minor),
        _ => 0,
    }
}

unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    if device::has(fd) {
        // SAFETY: the caller's buffer; librdmacm's commands refer to its own memory for the replies.
        return unsafe { device::command(fd, std::slice::from_raw_parts(buffer.cast(), len)) };
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::write(fd, buffer, len) }
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    device::close(fd);
    // SAFETY: the caller's descriptor.
    unsafe { libc::close(fd) }
}

unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    guard(std::ptr::null_mut(), || {
        let Some(create) = CREATE_AH.get() else { return std::ptr::null_mut() };
        // SAFETY: the caller's arguments, as required by `ibv_create_ah`.
        unsafe {
            let mut attr = *attr;
            if attr.is_global == 0 {
                let info = Context::from_c((*pd).context).info();
                attr.is_global = 1;
                attr.grh.dgid.raw = info.gids.first().copied().unwrap_or_default();
                (attr.grh.sgid_index, attr.grh.hop_limit) = (info.gid_index(0) as u8, 64);
            }
            create(pd, &mut attr)
        }
    })
}
