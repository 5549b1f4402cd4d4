//! The `tally` binary; everything is in the library, so that tests and benchmarks reach it too.

/// Requests make many small, short-lived values in several threads: the system's allocator spends twice
/// as long on them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tally::run()
}
