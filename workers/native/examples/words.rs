//! A source in Rust, with nothing but its standard library. Build and try it:
//!
//!     rustc --edition 2021 --crate-type cdylib -O -o words.so words.rs
//!
//! The structs are those of toolsd_source.h, ABI 1; their comments there say whose each pointer is.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

#[repr(C)]
pub struct Text {
    data: *const c_char,
    size: usize,
}

#[repr(C)]
pub struct Allocator {
    allocate: extern "C" fn(usize) -> *mut c_void,
    release: extern "C" fn(*mut c_void),
}

#[repr(C)]
pub struct Tool {
    name: *const c_char,
    description: *const c_char,
    parameters: *const c_char,
    flags: u32,
}

#[repr(C)]
pub struct Call {
    tool_index: u32,
    tool: Text,
    id: Text,
    arguments: Text,
}

#[repr(C)]
pub struct Result {
    kind: u32,
    mime: *const c_char,
    data: *mut c_char,
    size: usize,
}

#[repr(C)]
pub struct Context {
    host: *mut c_void,
    turn: Text,
    session: Text,
    deadline: i64,
    cancelled: extern "C" fn(*const Context) -> c_int,
    started: extern "C" fn(*const Context, usize),
    finished: extern "C" fn(*const Context, usize),
    progress: extern "C" fn(*const Context, usize, f64, f64, *const c_char),
    write: extern "C" fn(*const Context, usize, *const c_char, usize),
    log: extern "C" fn(*const Context, usize, c_int, *const c_char),
    fail: extern "C" fn(*const Context, *const c_char),
}

type Invoke =
    extern "C" fn(*mut c_void, *const Context, *const Call, *mut Result, usize, *const Allocator) -> i32;

#[repr(C)]
pub struct Source {
    abi: u32,
    flags: u32,
    name: *const c_char,
    tools: *const Tool,
    tool_count: usize,
    state: *mut c_void,
    invoke_batch: Invoke,
    deinit: Option<extern "C" fn(*mut c_void)>,
}

#[repr(C)]
pub struct Host {
    abi_oldest: u32,
    abi_newest: u32,
    fail: extern "C" fn(*const Host, *const c_char),
}

// What is behind the pointers never changes.
unsafe impl Sync for Tool {}
unsafe impl Sync for Source {}

const ABI: u32 = 1;
const TELLS: u32 = 1;
const IDEMPOTENT: u32 = 1;
const JSON: u32 = 2;
const ERROR: u32 = 4;

const TEXT: &std::ffi::CStr =
    c"{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}";
static TOOLS: [Tool; 2] = [
    Tool {
        name: c"count_words".as_ptr(),
        description: c"Count the words of a text.".as_ptr(),
        parameters: TEXT.as_ptr(),
        flags: IDEMPOTENT,
    },
    Tool {
        name: c"panic".as_ptr(),
        description: c"Show what a panic does: an error in its slot.".as_ptr(),
        parameters: TEXT.as_ptr(),
        flags: IDEMPOTENT,
    },
];

static SOURCE: Source = Source {
    abi: ABI,
    flags: TELLS,
    name: c"words".as_ptr(),
    tools: TOOLS.as_ptr(),
    tool_count: TOOLS.len(),
    state: std::ptr::null_mut(),
    invoke_batch,
    deinit: None,
};

#[no_mangle]
pub extern "C" fn toolsd_source_entry(_host: *const Host) -> *const Source {
    &SOURCE
}

/// What each tool does: JSON, or an error for the model.
fn run(tool: u32, arguments: &str) -> std::result::Result<String, String> {
    // Real sources use serde_json. The words of a JSON text are those of the text but for its quotes and escapes.
    let text = arguments.splitn(2, ':').nth(1).unwrap_or("").replace("\\n", " ").replace('"', " ").replace('}', " ");
    match tool {
        0 => Ok(format!("{{\"words\":{}}}", text.split_whitespace().count())),
        _ => panic!("asked to: {}", text.trim()),
    }
}

extern "C" fn invoke_batch(
    _state: *mut c_void,
    context: *const Context,
    calls: *const Call,
    results: *mut Result,
    n: usize,
    allocator: *const Allocator,
) -> i32 {
    // The host's promises: the pointers are good for `n` calls and slots, until we return.
    let (calls, results) = unsafe { (std::slice::from_raw_parts(calls, n), std::slice::from_raw_parts_mut(results, n)) };
    let (told, allocator) = unsafe { (&*context, &*allocator) };
    for (at, (call, result)) in calls.iter().zip(results).enumerate() {
        if (told.cancelled)(context) != 0 {
            break;
        }
        (told.started)(context, at);
        let raw = unsafe { std::slice::from_raw_parts(call.arguments.data as *const u8, call.arguments.size) };
        let arguments = String::from_utf8_lossy(raw);
        // A panic must not unwind into the host: uncaught, it would end the process.
        let outcome = catch_unwind(AssertUnwindSafe(|| run(call.tool_index, &arguments)))
            .unwrap_or_else(|_| Err("it panicked; its stderr says where".to_string()));
        let (kind, text) = match outcome {
            Ok(json) => (JSON, json),
            Err(message) => (ERROR, message),
        };
        fill(result, allocator, kind, text.as_bytes());
        (told.finished)(context, at);
    }
    0
}

fn fill(result: &mut Result, allocator: &Allocator, kind: u32, data: &[u8]) {
    let memory = (allocator.allocate)(data.len()) as *mut u8;
    if !memory.is_null() {
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), memory, data.len()) };
    }
    // A size without data says that there was no memory.
    *result = Result { kind, mime: std::ptr::null(), data: memory as *mut c_char, size: data.len() };
}
