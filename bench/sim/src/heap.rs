//! Heap of a simulation on large pages.
//!
//! A packet of a large network touches a few dozen places all over the memory. With pages of 4 KiB, most of them
//! require a page walk, and so do the prefetches that are meant to hide memory latency.

/// Has the C library's allocator take memory from one range of address space that the kernel backs with large pages, if
/// it does so on demand (transparent huge pages, `madvise`). No effect with other allocators, and no harm where memory
/// is limited. To be called before other threads allocate.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn prefer_large_pages() {
    /// Initial size of the address space, bytes. Unused parts take no memory.
    const RESERVED: usize = 1 << 30;
    /// Size of the first allocations, which make the allocator reserve memory, bytes; below its mmap threshold.
    const FIRST: usize = 64 << 10;

    // SAFETY: `mallopt` may be called at any time and changes only where later allocations come from. `FIRST` bytes are
    // allocated and freed again. The advice concerns pages between them and the end of the heap, all of which belong to
    // the allocator; it is a hint that does not change their contents.
    unsafe {
        // Threads use the same range, and memory is never returned.
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, RESERVED as libc::c_int);
        // Several, since the heap has some free space at startup.
        let blocks = [(); 4].map(|()| std::hint::black_box(libc::malloc(FIRST)));
        let end = libc::sbrk(0) as usize;
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
        let [.., last] = blocks;
        let start = last as usize & !4095;
        if (start..start + 2 * RESERVED).contains(&end) && !last.is_null() {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE);
        }
        blocks.into_iter().for_each(|block| libc::free(block));
    }
}

/// Does nothing: the allocator is unknown.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn prefer_large_pages() {}
