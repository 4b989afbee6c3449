//! Programs that this one starts: the dynamic loader reads the time stamp counter before anything could handle that, so
//! that the counter must be allowed again before another program is executed.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, pid_t};

use crate::next::{Next, c_name, next};
use crate::tsc::{allow, forbid};

/// Functions that do not return if they succeed. Some are variadic: all arguments stay where they are.
macro_rules! executing {
    ($($name:ident, $find:ident;)+) => {
        $(
            extern "C" fn $find() -> *mut c_void {
                static NEXT: Next = Next::new(c_name!($name));
                allow();
                NEXT.get()
            }

            /// # Safety
            /// That of the function of this name in C.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    // Arguments, and the number of those in vector registers; the stack is aligned then.
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax",
                    "call {find}",
                    "mov r11, rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp r11",
                    find = sym $find,
                )
            }
        )+
    };
}

executing! {
    execve, find_execve;
    execv, find_execv;
    execvp, find_execvp;
    execvpe, find_execvpe;
    fexecve, find_fexecve;
    execl, find_execl;
    execlp, find_execlp;
    execle, find_execle;
}

/// Functions that start a program and return.
macro_rules! starting {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr;)+) => {
        $(
            /// # Safety
            /// That of the function of this name in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                static NEXT: Next = Next::new(c_name!($name));
                let was_forbidden = allow();
                let result = next!(NEXT, $failed, ($($argument => $type),*) -> $result);
                if was_forbidden {
                    forbid();
                }
                result
            }
        )+
    };
}

type Actions = *const c_void;
type Strings = *const *mut c_char;

starting! {
    fn posix_spawn(to: *mut pid_t, path: *const c_char, files: Actions, how: Actions, words: Strings, all: Strings)
        -> c_int, libc::ENOSYS;
    fn posix_spawnp(to: *mut pid_t, file: *const c_char, files: Actions, how: Actions, words: Strings, all: Strings)
        -> c_int, libc::ENOSYS;
    fn system(command: *const c_char) -> c_int, -1;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE, std::ptr::null_mut();
}
