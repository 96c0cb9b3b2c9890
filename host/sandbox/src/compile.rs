//! Compiles untrusted bytes to a component of machine code.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::ExitCode;

use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::confined::{self, Bounds, Confined, Stopped};
use crate::error::{LoadError, cut};
use crate::hex::hex;
use crate::settings::{Allocation, compiling_config};
use crate::shape;

/// Where policies are compiled.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// In this process, for tests and benchmarks, which trust their policies. A compilation that takes too long
    /// is left behind on its own thread, and nothing limits its memory.
    #[cfg(feature = "simulation")]
    InProcess,
    /// In a process of its own for each policy. Its answer is machine code that the host runs. The host
    /// trusts it because it comes from the host's own program, through a pipe that no other process has.
    Child(Confined),
}

/// Keeps machine code for the next process. A user who can write to the store can run code in the host.
pub trait KeepsCode: fmt::Debug + Send + Sync {
    /// What was kept under this name, whole; `None` if there is nothing.
    fn read(&self, name: &str) -> Option<Vec<u8>>;
    /// Keeps this, as far as there is room.
    fn keep(&self, name: &str, code: &[u8]);
}

/// The version of what is kept. It changes with [`Declared`] and with what is checked before machine code is made.
const KEPT: &str = concat!("1 ", env!("CARGO_PKG_VERSION"));

/// The name under which the machine code of these bytes is kept: another engine or other settings have other code.
fn kept_name(engine: &Engine, bytes: &[u8]) -> String {
    let mut of_engine = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut of_engine);
    let mut digest = Sha256::new();
    digest.update(KEPT);
    digest.update(of_engine.finish().to_le_bytes());
    digest.update(bytes);
    hex(&digest.finalize())
}

/// A policy as a component of machine code.
pub(crate) struct Compiled {
    pub(crate) component: Component,
    /// What the policy's bytes declare.
    pub(crate) declared: Declared,
}

/// What a policy's bytes declare. It is read where they are compiled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    /// The bytes that the instances of a step take, without their memories and tables.
    pub(crate) instances: u64,
    /// The manifest; `None` if no custom section holds it.
    pub(crate) manifest: Option<Vec<u8>>,
}

impl Declared {
    fn of(bytes: &[u8], component: &[u8]) -> Result<Self, LoadError> {
        let instances = shape::instances(component).map_err(LoadError::Shape)?;
        let manifest = shape::manifest(bytes).map_err(LoadError::Shape)?;
        Ok(Declared { instances, manifest })
    }

    /// The form in which the declarations go through the pipe, before the machine code.
    fn written(&self) -> Vec<u8> {
        let length = self.manifest.as_ref().map_or(u64::MAX, |text| text.len() as u64);
        let manifest = self.manifest.as_deref().unwrap_or_default();
        [&self.instances.to_le_bytes(), &length.to_le_bytes(), manifest].concat()
    }

    /// Reads the declarations from the pipe. Returns them and the rest of the bytes.
    fn read(answer: &[u8]) -> Option<(Self, &[u8])> {
        let (instances, rest) = answer.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (manifest, code) = match u64::from_le_bytes(*length) {
            u64::MAX => (None, rest),
            length => {
                let (manifest, code) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Some(manifest.to_vec()), code)
            }
        };
        let instances = u64::from_le_bytes(*instances);
        Some((Declared { instances, manifest }, code))
    }
}

impl Compiler {
    /// Compiles bytes to a component for this engine.
    pub(crate) fn compile(
        &self,
        engine: &Engine,
        allocation: Allocation,
        bytes: &[u8],
        bounds: Bounds,
        keeps: Option<&dyn KeepsCode>,
    ) -> Result<Compiled, LoadError> {
        match self {
            #[cfg(feature = "simulation")]
            Compiler::InProcess => in_process(engine, bytes, bounds),
            Compiler::Child(confined) => {
                let compile = || {
                    let task = ["compile", allocation.name()];
                    confined.run(&task, bytes, bounds)?.map_err(LoadError::Refused)
                };
                kept_or(engine, bytes, keeps, compile)
            }
        }
    }
}

/// What was kept for these bytes; otherwise what `compile` makes of them, which is kept.
fn kept_or(
    engine: &Engine,
    bytes: &[u8],
    keeps: Option<&dyn KeepsCode>,
    compile: impl FnOnce() -> Result<Vec<u8>, LoadError>,
) -> Result<Compiled, LoadError> {
    let name = keeps.map(|keeps| (keeps, kept_name(engine, bytes)));
    let kept = name.as_ref().and_then(|(keeps, name)| keeps.read(name));
    // What cannot be read any more is compiled anew.
    if let Some(Ok(compiled)) = kept.map(|answer| read(engine, &answer)) {
        return Ok(compiled);
    }
    let answer = compile()?;
    let compiled = read(engine, &answer)?;
    if let Some((keeps, name)) = name {
        keeps.keep(&name, &answer);
    }
    Ok(compiled)
}

impl From<Stopped> for LoadError {
    fn from(stopped: Stopped) -> Self {
        LoadError::Stopped(stopped)
    }
}

/// Reads the answer of the confined process: the declarations and the machine code.
fn read(engine: &Engine, answer: &[u8]) -> Result<Compiled, LoadError> {
    let short = || Stopped::Failed("the answer is cut off".into());
    let (declared, code) = Declared::read(answer).ok_or_else(short)?;
    Ok(Compiled {
        component: deserialize(engine, code)?,
        declared,
    })
}

// No other function loads machine code.
#[allow(unsafe_code, reason = "machine code is trusted to be the compiler's")]
fn deserialize(engine: &Engine, code: &[u8]) -> Result<Component, LoadError> {
    // SAFETY: the bytes came through a pipe from a process that this one started from its own executable, and
    // the answer was complete. So they are the output of `Engine::precompile_component`. Or they are such bytes as
    // `KeepsCode` kept them whole, in a place that its user trusts as the program itself.
    unsafe { Component::deserialize(engine, code) }.map_err(|e| LoadError::Compile(cut(format!("{e:#}"))))
}

/// The confined process: reads a policy and writes its machine code, for a sandbox with this allocation.
pub fn answer(allocation: Allocation, bounds: Bounds) -> ExitCode {
    confined::answer(bounds, |bytes| {
        let engine = Engine::new(&compiling_config(allocation)).map_err(LoadError::engine);
        let code = engine.and_then(|engine| {
            let component = componentise(&bytes)?;
            let declared = Declared::of(&bytes, &component)?;
            let code = engine.precompile_component(&component);
            let code = code.map_err(|e| LoadError::Compile(cut(format!("{e:#}"))))?;
            let answer = [declared.written(), code].concat();
            check_size(answer.len(), bounds.answer)?;
            Ok(answer)
        });
        code.map_err(|e| e.to_string())
    })
}

/// Compiles on a thread of its own. If that takes too long, the thread is left behind. It ends by itself,
/// because the size of its input is limited.
#[cfg(feature = "simulation")]
fn in_process(engine: &Engine, bytes: &[u8], bounds: Bounds) -> Result<Compiled, LoadError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (engine, bytes) = (engine.clone(), bytes.to_vec());
    std::thread::spawn(move || {
        let compiled = guarded(|| {
            let component = componentise(&bytes)?;
            let declared = Declared::of(&bytes, &component)?;
            let component = Component::from_binary(&engine, &component);
            let component = component.map_err(|e| LoadError::Compile(cut(format!("{e:#}"))))?;
            check_size(size(&component), bounds.answer)?;
            Ok(Compiled { component, declared })
        });
        let _ = sender.send(compiled);
    });
    receiver
        .recv_timeout(bounds.processor)
        .unwrap_or(Err(LoadError::Stopped(Stopped::Time(bounds.processor))))
}

/// The size of a compiled component in memory, in bytes.
pub(crate) fn size(component: &Component) -> usize {
    let image = component.image_range();
    (image.end as usize).saturating_sub(image.start as usize)
}

fn check_size(size: usize, largest: u64) -> Result<(), LoadError> {
    if size as u64 > largest {
        Err(LoadError::CompiledTooLarge { size, largest })
    } else {
        Ok(())
    }
}

/// Runs work and turns a panic into a refusal: the tools that read a policy are not all made for hostile
/// bytes.
#[cfg(feature = "simulation")]
fn guarded<T>(work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
    let damaged = || LoadError::Compile("the file is damaged, and the tools that read it panicked".into());
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| Err(damaged()))
}

/// Turns a core module into a component, by the description in its custom section. A component is returned as
/// it is.
fn componentise(bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    match bytes.get(4..8) {
        _ if bytes.is_empty() => Err(LoadError::Empty),
        _ if !bytes.starts_with(b"\0asm") => Err(LoadError::NotWasm),
        Some([1, 0, 0, 0]) => wit_component::ComponentEncoder::default()
            .validate(true)
            .module(bytes)
            .and_then(|mut encoder| encoder.encode())
            .map_err(|e| LoadError::NotComponent(cut(format!("{e:#}")))),
        Some([_, _, 1, 0]) => Ok(bytes.to_vec()),
        Some(_) => Err(LoadError::Compile(
            "the file is of another version of WebAssembly".into(),
        )),
        None => Err(LoadError::Compile(
            "the file ends in the middle of its header".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_confined_process_read_comes_through_the_pipe_whole() {
        for manifest in [None, Some(Vec::new()), Some(b"{}".to_vec())] {
            let declared = Declared {
                instances: 7,
                manifest,
            };
            let answer = [declared.written(), b"code".to_vec()].concat();
            assert_eq!(Declared::read(&answer), Some((declared, &b"code"[..])));
        }
        assert_eq!(Declared::read(&[0; 15]), None);
        let longer = [&[0; 8][..], &9_u64.to_le_bytes(), b"12345678"].concat();
        assert_eq!(Declared::read(&longer), None);
    }
}
