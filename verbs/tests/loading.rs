//! The dynamic loader takes the shared object for libibverbs.

mod support;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::process::{Command, Output};
use std::ptr;

use support::{library, skipped};
use tempfile::TempDir;

/// A directory in which the shared object is called libibverbs.
fn directory() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for name in ["libibverbs.so", "libibverbs.so.1"] {
        std::os::unix::fs::symlink(library(), dir.path().join(name)).expect("a symbolic link");
    }
    dir
}

/// A command that needs a program of the distribution.
fn program(name: &str) -> Option<Command> {
    let path = Path::new("/usr/bin").join(name);
    if !path.exists() {
        return skipped(&format!("{} is not installed", path.display()));
    }
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    Some(command)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Loads the shared object into this process.
fn open() -> *mut c_void {
    let path = CString::new(library().into_os_string().into_encoded_bytes()).expect("a path without NUL");
    // SAFETY: the constructors of the object are those of Rust's standard library.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "the loader refuses {path:?}");
    handle
}

/// The address of a name in a version, NULL if there is none.
fn find(handle: *mut c_void, name: &CStr, version: &CStr) -> *mut c_void {
    // SAFETY: the handle comes from dlopen, both strings end with NUL.
    unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) }
}

/// The address of a function that has to be there, as a pointer of type `F`.
fn function<F: Copy>(handle: *mut c_void, name: &CStr, version: &CStr) -> F {
    let address = find(handle, name, version);
    assert!(!address.is_null(), "no {name:?} in {version:?}");
    assert_eq!(size_of::<F>(), size_of_val(&address));
    // SAFETY: the callers name the type that the function has in C.
    unsafe { std::mem::transmute_copy(&address) }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().expect("an error of the C library")
}

#[test]
fn ibv_devices_runs_with_the_directory_in_the_library_path() {
    let Some(mut command) = program("ibv_devices") else { return };
    let dir = directory();
    let output = command.env("LD_LIBRARY_PATH", dir.path()).output().expect("it starts");
    assert!(output.status.success(), "{}: {}", output.status, text(&output));
    assert!(text(&output).contains("node GUID"), "{}", text(&output));
    assert!(!text(&output).contains("no version information"), "{}", text(&output));
}

#[test]
fn ibv_devices_runs_with_the_object_preloaded() {
    let Some(mut command) = program("ibv_devices") else { return };
    let output = command.env("LD_PRELOAD", library()).output().expect("it starts");
    assert!(output.status.success(), "{}: {}", output.status, text(&output));
    assert!(!text(&output).contains("no version information"), "{}", text(&output));
}

#[test]
fn the_loader_finds_every_symbol_of_programs_and_their_vendor_libraries() {
    let dir = directory();
    for name in ["ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ib_write_bw", "ib_send_lat", "ucx_info", "fi_info"] {
        let Some(mut command) = program(name) else { continue };
        // As `ldd -r`: resolve everything, and tell what is missing, instead of running the program.
        command.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_WARN", "yes").env("LD_BIND_NOW", "yes");
        let output = command.env("LD_LIBRARY_PATH", dir.path()).output().expect("it starts");
        assert!(output.status.success(), "{name}: {}", text(&output));
        for complaint in ["undefined symbol", "not found", "no version information"] {
            assert!(!text(&output).contains(complaint), "{name}: {}", text(&output));
        }
        if name.starts_with("ib") {
            assert!(text(&output).contains(&*dir.path().to_string_lossy()), "{name}: {}", text(&output));
        }
    }
}

#[test]
fn perftest_starts_although_it_brings_vendor_libraries() {
    let Some(mut command) = program("ib_write_bw") else { return };
    let dir = directory();
    let output = command.arg("--version").env("LD_LIBRARY_PATH", dir.path()).output().expect("it starts");
    assert!(text(&output).contains("Version:"), "{}: {}", output.status, text(&output));
}

#[test]
fn a_c_program_links_with_the_directory_and_runs() {
    const PROGRAM: &str = r#"
        #include <stdio.h>
        struct ibv_device **ibv_get_device_list(int *);
        void ibv_free_device_list(struct ibv_device **);
        const char *ibv_wc_status_str(int);
        int main(void) {
            int n = -1;
            struct ibv_device **list = ibv_get_device_list(&n);
            if (!list || n < 0 || list[n]) return 1;
            ibv_free_device_list(list);
            return puts(ibv_wc_status_str(0)) < 0;
        }
    "#;
    let dir = directory();
    let source = dir.path().join("program.c");
    std::fs::write(&source, PROGRAM).expect("room for the program");
    let program = dir.path().join("program");
    let mut cc = Command::new("cc");
    cc.env("LC_ALL", "C").arg(&source).arg("-o").arg(&program).arg("-L").arg(dir.path()).arg("-libverbs");
    match cc.output() {
        Err(e) => skipped::<()>(&format!("the C compiler does not start: {e}")),
        Ok(built) => {
            assert!(built.status.success(), "{}", text(&built));
            let output = Command::new(&program).env("LD_LIBRARY_PATH", dir.path()).output().expect("it starts");
            assert!(output.status.success(), "{}: {}", output.status, text(&output));
            assert_eq!(text(&output), "success\n");
            let symbols = support::symbols(&program).unwrap_or_default();
            let versions: Vec<_> =
                symbols.iter().filter(|s| s.name.starts_with("ibv_")).map(|s| s.version.as_str()).collect();
            assert!(versions.iter().all(|&v| v == "IBVERBS_1.1"), "{versions:?}");
            Some(())
        }
    };
}

#[test]
fn a_closed_object_stays_mapped() {
    // The other tests of this process hold it open; so the flag in the file has to do.
    let readelf = Command::new("readelf").env("LC_ALL", "C").arg("--wide").arg("--dynamic").arg(library()).output();
    match readelf {
        Err(e) => skipped::<()>(&format!("readelf does not start: {e}")),
        Ok(output) => {
            assert!(text(&output).contains("NODELETE"), "{}", text(&output));
            Some(())
        }
    };
}

#[test]
fn names_are_found_in_their_versions_only() {
    let handle = open();
    for (name, version) in [
        (c"ibv_get_device_list", c"IBVERBS_1.1"),
        (c"ibv_open_device", c"IBVERBS_1.1"),
        (c"ibv_create_comp_channel", c"IBVERBS_1.0"),
        (c"ibv_rate_to_mult", c"IBVERBS_1.0"),
        (c"ibv_fork_init", c"IBVERBS_1.1"),
        (c"ibv_reg_mr_iova2", c"IBVERBS_1.8"),
        (c"ibv_query_ece", c"IBVERBS_1.10"),
        (c"ibv_reg_dmabuf_mr", c"IBVERBS_1.12"),
        (c"ibv_set_comp_cntr", c"IBVERBS_1.18"),
        (c"ibv_cmd_reg_mr", c"IBVERBS_PRIVATE_34"),
        (c"verbs_register_driver_65", c"IBVERBS_PRIVATE_65"),
    ] {
        assert!(!find(handle, name, version).is_null(), "no {name:?} in {version:?}");
    }
    for (name, version) in [
        (c"ibv_fork_init", c"IBVERBS_1.0"),
        (c"ibv_create_comp_channel", c"IBVERBS_1.1"),
        (c"ibv_reg_mr_iova2", c"IBVERBS_1.7"),
        (c"ibv_alloc_pd", c"IBVERBS_1.8"),
        (c"ibv_alloc_pd", c"IBVERBS_2.0"),
        (c"verbs_register_driver_34", c"IBVERBS_PRIVATE_65"),
    ] {
        assert!(find(handle, name, version).is_null(), "{name:?} is in {version:?}");
    }
    let old = find(handle, c"ibv_alloc_pd", c"IBVERBS_1.0");
    let new = find(handle, c"ibv_alloc_pd", c"IBVERBS_1.1");
    // SAFETY: the handle comes from dlopen, the string ends with NUL.
    let default = unsafe { libc::dlsym(handle, c"ibv_alloc_pd".as_ptr()) };
    assert!(!old.is_null() && old != new && default == new);
}

#[test]
fn a_program_of_libibverbs_1_0_gets_no_device() {
    let handle = open();
    let get: unsafe extern "C" fn(*mut c_int) -> *mut c_void = function(handle, c"ibv_get_device_list", c"IBVERBS_1.0");
    let mut count = 7;
    // SAFETY: `count` is an int.
    assert_eq!(unsafe { get(&raw mut count) }, ptr::null_mut());
    assert_eq!((errno(), count), (libc::EOPNOTSUPP, 0));
}

#[test]
fn calls_reach_their_functions_with_arguments_and_results() {
    let handle = open();
    let status: extern "C" fn(u32) -> *const c_char = function(handle, c"ibv_wc_status_str", c"IBVERBS_1.1");
    // SAFETY: the function returns constant strings.
    assert_eq!(unsafe { CStr::from_ptr(status(12)) }, c"transport retry counter exceeded");
    let to_mult: extern "C" fn(u32) -> c_int = function(handle, c"ibv_rate_to_mult", c"IBVERBS_1.0");
    assert_eq!(to_mult(3), 4);
    let order: extern "C" fn(*mut c_void, u32, u32) -> c_int =
        function(handle, c"ibv_query_qp_data_in_order", c"IBVERBS_1.14");
    assert_eq!(order(ptr::null_mut(), 0, 1), 0);
}

#[test]
fn vendor_libraries_register_in_vain() {
    let handle = open();
    let register: extern "C" fn(*const c_void) = function(handle, c"verbs_register_driver_34", c"IBVERBS_PRIVATE_34");
    register(ptr::null());
    let command: extern "C" fn(*mut c_void, *mut c_void) -> c_int =
        function(handle, c"ibv_cmd_alloc_pd", c"IBVERBS_PRIVATE_34");
    assert_eq!(command(ptr::null_mut(), ptr::null_mut()), libc::EOPNOTSUPP);
    let open_device: extern "C" fn(*mut c_void, *mut c_void) -> *mut c_void =
        function(handle, c"verbs_open_device", c"IBVERBS_PRIVATE_34");
    assert_eq!((open_device(ptr::null_mut(), ptr::null_mut()), errno()), (ptr::null_mut(), libc::EOPNOTSUPP));
    let flag: *mut u8 = find(handle, c"verbs_allow_disassociate_destroy", c"IBVERBS_PRIVATE_34").cast();
    // SAFETY: the symbol is a bool that drivers write; no other test touches it.
    unsafe {
        assert_eq!(flag.read(), 0);
        flag.write(1);
    }
}
