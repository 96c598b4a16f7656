#![no_main]

#[global_allocator]
static ALLOCATOR: spirula_fuzzing::Counting = spirula_fuzzing::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| spirula_fuzzing::check("rbd", data));
