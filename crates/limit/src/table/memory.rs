//! The memory of a table: zeroed lines, on huge pages where the system has them.
//!
//! The only unsafe code of this crate. A million keys are 25 MB, far more than a processor can translate the
//! addresses of with 4 KiB pages; with 2 MiB pages a decision costs one cache miss instead of two. The system
//! hands out zeroed memory page by page, when it is first touched, so that a large table costs nothing until
//! it is used, and never more than one page's zeroing at a time.

use super::line::Line;

#[cfg(not(loom))]
#[expect(unsafe_code, reason = "std offers no lazily zeroed, aligned memory for atomics")]
mod lines {
    use super::Line;
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ops::Deref;
    use std::ptr::NonNull;
    use std::slice;

    const HUGE_PAGE: usize = 2 << 20;

    /// A slice of lines, all zero at first.
    pub(crate) struct Lines {
        start: NonNull<Line>,
        count: usize,
        /// What was allocated: as much more as it takes to begin at a page.
        memory: NonNull<u8>,
        layout: Layout,
    }

    impl Lines {
        pub(crate) fn new(count: usize) -> Lines {
            let bytes = count.saturating_mul(size_of::<Line>());
            let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { align_of::<Line>() };
            // Allocators zero memory of ordinary alignment lazily, but touch all of it for a larger one.
            let Ok(layout) = Layout::from_size_align(bytes.saturating_add(align), 16) else {
                handle_alloc_error(Layout::new::<Line>())
            };
            // SAFETY: the layout is at least `align` bytes long, so not empty.
            let memory = unsafe { alloc_zeroed(layout) };
            let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
            let skipped = memory.align_offset(align).min(align);
            // SAFETY: at most `align` bytes are skipped, and that many were allocated in excess.
            let start = unsafe { memory.add(skipped) }.cast();
            let lines = Lines { start, count, memory, layout };
            lines.ask_for_huge_pages(bytes);
            lines
        }

        #[cfg(all(target_os = "linux", feature = "huge-pages", not(miri)))]
        fn ask_for_huge_pages(&self, bytes: usize) {
            if bytes >= HUGE_PAGE {
                // SAFETY: the range lies within memory that this owns; the advice does not change its content.
                // A system that knows no huge pages says no, and nothing is lost.
                unsafe { libc::madvise(self.start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
            }
        }

        #[cfg(not(all(target_os = "linux", feature = "huge-pages", not(miri))))]
        fn ask_for_huge_pages(&self, _bytes: usize) {}

        /// Starts loading a line into the cache, to be written to.
        #[inline]
        pub(crate) fn prefetch(&self, index: usize) {
            #[cfg(target_arch = "x86_64")]
            if let Some(line) = self.get(index) {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                // SAFETY: a prefetch changes no state that a program can see, and the address is valid.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) };
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = index;
        }
    }

    impl Deref for Lines {
        type Target = [Line];

        #[inline]
        fn deref(&self) -> &[Line] {
            // SAFETY: `count` lines were allocated from `start` on, aligned at least as a line must be; a
            // zeroed line is a valid one, since atomic integers are; they are freed only on drop.
            unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }
    }

    impl Drop for Lines {
        fn drop(&mut self) {
            // SAFETY: this is the pointer that `alloc_zeroed` gave for this layout. Lines need no drop.
            unsafe { dealloc(self.memory.as_ptr(), self.layout) };
        }
    }

    // SAFETY: this owns its lines as a boxed slice would, and lines are made of atomics.
    unsafe impl Send for Lines {}
    // SAFETY: as above; shared access goes through the atomics.
    unsafe impl Sync for Lines {}
}

#[cfg(loom)]
mod lines {
    use super::Line;

    /// Lines of the model checker's atomics, which cannot be made of zeroes.
    pub(crate) struct Lines(Vec<Line>);

    impl Lines {
        pub(crate) fn new(count: usize) -> Lines {
            Lines((0..count).map(|_| Line::default()).collect())
        }

        pub(crate) fn prefetch(&self, _index: usize) {}
    }

    impl std::ops::Deref for Lines {
        type Target = [Line];

        fn deref(&self) -> &[Line] {
            &self.0
        }
    }
}

pub(crate) use lines::Lines;
