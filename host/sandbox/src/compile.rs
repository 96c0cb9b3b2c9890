//! Compiling: from bytes that nobody vouches for to a component of machine code.

use std::process::ExitCode;
use std::sync::mpsc;

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::confined::{self, Bounds, Confined, Stopped};
use crate::error::{LoadError, cut};
use crate::settings::{Allocation, compiling_config};
use crate::shape;

/// Who compiles policies.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// This process. Whatever takes too long is left behind on a thread of its own, and nothing bounds its memory: for
    /// tests and benchmarks, whose policies are nobody else's.
    InProcess,
    /// A process of its own for each policy. What it answers is taken for machine code of this very program's compiler,
    /// and run: it comes through a pipe that nobody else has.
    Child(Confined),
}

/// A policy as a component of machine code.
pub(crate) struct Compiled {
    pub(crate) component: Component,
    /// What its bytes say of it beside what it does.
    pub(crate) declared: Declared,
}

/// What the bytes of a policy say, read where they are compiled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Bytes that the instances of a step take beside their memories and tables.
    pub(crate) instances: u64,
    /// The manifest, where a custom section holds it.
    pub(crate) manifest: Option<Vec<u8>>,
}

impl Declared {
    fn of(bytes: &[u8], component: &[u8]) -> Result<Self, LoadError> {
        let instances = shape::instances(component).map_err(LoadError::Shape)?;
        let manifest = shape::manifest(bytes).map_err(LoadError::Shape)?;
        Ok(Declared { instances, manifest })
    }

    /// As it goes through the pipe, before the machine code.
    fn written(&self) -> Vec<u8> {
        let length = self.manifest.as_ref().map_or(u64::MAX, |text| text.len() as u64);
        let manifest = self.manifest.as_deref().unwrap_or_default();
        [&self.instances.to_le_bytes(), &length.to_le_bytes(), manifest].concat()
    }

    /// As it came through the pipe, and what came after it.
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
    /// The component that bytes are, compiled for this engine.
    pub(crate) fn compile(
        &self,
        engine: &Engine,
        allocation: Allocation,
        bytes: &[u8],
        bounds: Bounds,
    ) -> Result<Compiled, LoadError> {
        match self {
            Compiler::InProcess => in_process(engine, bytes, bounds),
            Compiler::Child(confined) => {
                let task = ["compile", allocation.name()];
                match confined.run(&task, bytes, bounds)? {
                    Ok(answer) => read(engine, &answer),
                    Err(words) => Err(LoadError::Refused(words)),
                }
            }
        }
    }
}

impl From<Stopped> for LoadError {
    fn from(stopped: Stopped) -> Self {
        LoadError::Stopped(stopped)
    }
}

/// What the confined process answered: what the bytes say, and machine code.
fn read(engine: &Engine, answer: &[u8]) -> Result<Compiled, LoadError> {
    let short = || Stopped::Failed("its answer is too short".into());
    let (declared, code) = Declared::read(answer).ok_or_else(short)?;
    Ok(Compiled {
        component: deserialize(engine, code)?,
        declared,
    })
}

// The only machine code that is ever loaded.
#[allow(unsafe_code, reason = "machine code is trusted to be the compiler's")]
fn deserialize(engine: &Engine, code: &[u8]) -> Result<Component, LoadError> {
    // SAFETY: the bytes came through a pipe from a process that this one started from its own executable, and whose
    // answer was whole; they are what `Engine::precompile_component` made there.
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

/// Compiles on a thread of its own: one that takes too long is left behind and ends by itself, its size being bounded.
fn in_process(engine: &Engine, bytes: &[u8], bounds: Bounds) -> Result<Compiled, LoadError> {
    let (sender, receiver) = mpsc::channel();
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

/// Bytes of what is kept of a compiled component.
pub(crate) fn size(component: &Component) -> usize {
    let image = component.image_range();
    (image.end as usize).saturating_sub(image.start as usize)
}

fn check_size(size: usize, largest: u64) -> Result<(), LoadError> {
    match size as u64 > largest {
        true => Err(LoadError::CompiledTooLarge { size, largest }),
        false => Ok(()),
    }
}

/// The tools that read a policy are not all made for hostile bytes: a panic of theirs is a refusal.
fn guarded<T>(work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
    let damaged = || LoadError::Compile("it is damaged in a way that stopped the tools reading it".into());
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| Err(damaged()))
}

/// A core module carries a description of its component in a custom section; a component is taken as it is.
fn componentise(bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    match bytes.get(4..8) {
        _ if bytes.is_empty() => Err(LoadError::Empty),
        _ if !bytes.starts_with(b"\0asm") => Err(LoadError::NotWasm),
        Some([1, 0, 0, 0]) => wit_component::ComponentEncoder::default()
            .validate(true)
            .module(bytes)
            .and_then(|encoder| encoder.encode())
            .map_err(|e| LoadError::NotComponent(cut(format!("{e:#}")))),
        Some([_, _, 1, 0]) => Ok(bytes.to_vec()),
        Some(_) => Err(LoadError::Compile(
            "it is of another version of WebAssembly".into(),
        )),
        None => Err(LoadError::Compile("it ends in the middle of its header".into())),
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
