//! The names and versions of the functions exported by the shared object.
//!
//! An application requests `ibv_alloc_pd@IBVERBS_1.1`, and rustc cannot give a symbol a version. So each export is a
//! jump in assembler that carries the versioned name; `nodes.map` declares the versions to the linker. The functions
//! themselves are in [`crate::calls`]. Nothing else of this crate is visible in the shared object.

mod ancient;
mod private;
mod public;

/// The instruction that continues in another function with the caller's arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! jump_instruction {
    () => {
        "jmp {target}"
    };
}

/// The instruction that continues in another function with the caller's arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! jump_instruction {
    () => {
        "b {target}"
    };
}

/// One jump, exported as `$symbol`. `$label` is its name inside the object file; `remove` keeps it out of the symbol
/// table. The section carries the retain flag, as nothing but the symbol table refers to the jump.
macro_rules! jump {
    ($label:expr, $symbol:expr, $target:path) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.", $label, ",\"axR\",%progbits"),
            concat!(".globl ", $label),
            concat!(".type ", $label, ",%function"),
            concat!($label, ":"),
            $crate::symbols::jump_instruction!(),
            concat!(".size ", $label, ", . - ", $label),
            concat!(".symver ", $label, ", ", $symbol, ", remove"),
            ".popsection",
            target = sym $target,
        );
    };
}

/// Exports functions under one version node. `"@@"` makes this version the default of the name, `"@"` is for explicit
/// requests only. `module { names }` exports the functions of these names, `target => { names }` one function under
/// many names.
macro_rules! node {
    ($node:literal $at:literal $module:ident { $($name:ident)* }) => {
        $($crate::symbols::jump!(
            concat!("irnic.", stringify!($name), ".", $node),
            concat!(stringify!($name), $at, $node),
            $module::$name
        );)*
    };
    ($node:literal $at:literal $target:path => { $($name:ident)* }) => {
        $($crate::symbols::jump!(
            concat!("irnic.", stringify!($name), ".", $node),
            concat!(stringify!($name), $at, $node),
            $target
        );)*
    };
}

use {jump, jump_instruction, node};
