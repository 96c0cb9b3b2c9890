//! The `polity` command: parses its arguments, runs it, and sets the exit code.

use clap::Parser as _;

// A pass makes thousands of small allocations on several threads. The allocator of musl, in the image, has one lock for all
// of them; that of glibc takes a sixth more processor time, and keeps more memory.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    polity::cli::Cli::parse().run()
}
