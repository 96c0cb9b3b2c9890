//! Counts what a policy declares before it is compiled. Each declaration costs the host memory that does not
//! count as the guest's.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef,
    ElementItems, Encoding, Instance, Parser, Payload,
};

use crate::state::INSTANCES;

/// The most bytes of type declarations. A type has at least three bytes; the host keeps it in some hundred
/// bytes as long as the policy.
const TYPES: u64 = 256 << 10;
/// The most other declarations: imports, exports, functions, globals, instances, aliases.
const ITEMS: u64 = 500_000;

/// The bytes that an instance takes for each global, import, function that a table can hold, and element of a
/// segment: wasmtime's sizes, rounded up.
const GLOBAL: u64 = 16;
const IMPORT: u64 = 32;
const CALLABLE: u64 = 48;
const ELEMENT: u64 = 16;

/// The declarations of a core module.
#[derive(Default)]
struct Module {
    globals: u64,
    imports: u64,
    functions: u64,
    exports: u64,
    elements: u64,
}

impl Module {
    /// The most bytes that one instance of this module takes.
    fn instance(&self) -> u64 {
        let callable = self.functions.saturating_add(self.imports).min(
            self.exports
                .saturating_add(self.elements)
                .saturating_add(self.globals),
        );
        let parts = [
            (self.globals, GLOBAL),
            (self.imports, IMPORT),
            (callable, CALLABLE),
            (self.elements, ELEMENT),
        ];
        let bytes = |(count, each): (u64, u64)| count.saturating_mul(each);
        parts.into_iter().map(bytes).fold(0, u64::saturating_add)
    }
}

/// The findings so far.
#[derive(Default)]
struct Found {
    /// For each module of the outermost component, by index: the bytes of one instance, and how often it is
    /// instantiated.
    modules: Vec<(u64, u64)>,
    /// The bytes of one instance of the largest module in an inner component.
    inner: u64,
    /// Whether modules are passed on, so that an inner component may instantiate any of them.
    handed: bool,
    types: u64,
    items: u64,
}

impl Found {
    /// The most bytes that all instances of a step take, without their memories and tables.
    fn instances(&self) -> u64 {
        let all = |largest: u64| largest.saturating_mul(INSTANCES as u64);
        let outer = self
            .modules
            .iter()
            .map(|(bytes, _)| *bytes)
            .max()
            .unwrap_or_default();
        let anything = all(outer.max(self.inner));
        if self.handed {
            return anything;
        }
        let each = self
            .modules
            .iter()
            .map(|(bytes, times)| bytes.saturating_mul(*times));
        each.fold(all(self.inner), u64::saturating_add).min(anything)
    }

    fn check(&self) -> Result<(), String> {
        match (self.types, self.items) {
            (types, _) if types > TYPES => Err(format!("the types take {types} bytes; the limit is {TYPES}")),
            (_, items) if items > ITEMS => Err(format!(
                "there are more than {ITEMS} functions, imports, exports and other declarations"
            )),
            _ => Ok(()),
        }
    }
}

/// The bytes that the instances of a step take without their memories and tables, or the reason why the
/// policy is too large for the host. Bytes that cannot be read are left to the compiler, which reports the
/// error.
pub(crate) fn instances(component: &[u8]) -> Result<u64, String> {
    let mut found = Found::default();
    // The open components, and the module that is open inside the innermost.
    let (mut components, mut module) = (0_u32, None::<Module>);
    for payload in Parser::new(0).parse_all(component) {
        let Ok(payload) = payload else { break };
        match payload {
            Payload::Version { encoding, .. } => match encoding {
                Encoding::Module => module = Some(Module::default()),
                Encoding::Component => components += 1,
            },
            Payload::End(_) => match module.take() {
                Some(module) if components > 1 => found.inner = found.inner.max(module.instance()),
                Some(module) => found.modules.push((module.instance(), 0)),
                None => components = components.saturating_sub(1),
            },
            payload => {
                let (types, items) = declared(&payload, module.as_mut());
                found.types = found.types.saturating_add(types);
                found.items = found.items.saturating_add(items);
                if components == 1 {
                    instantiated(&payload, &mut found.modules);
                }
                found.handed |= hands_modules(&payload);
                found.check()?;
            }
        }
    }
    Ok(found.instances())
}

/// The custom section that holds a manifest.
const MANIFEST: &str = "polity.manifest";

/// The content of a policy's section for its manifest; `None` without such a section. Inner modules and
/// components are skipped.
pub(crate) fn manifest(policy: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut depth = 0_u32;
    let mut found = None;
    for payload in Parser::new(0).parse_all(policy) {
        match payload {
            Ok(Payload::Version { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            Ok(Payload::CustomSection(section)) if depth == 1 && section.name() == MANIFEST => {
                if found.replace(section.data().to_vec()).is_some() {
                    return Err(format!("there are two sections {MANIFEST}"));
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(found)
}

/// Counts the instances of the outermost component's own modules.
fn instantiated(payload: &Payload<'_>, modules: &mut [(u64, u64)]) {
    let Payload::InstanceSection(section) = payload else {
        return;
    };
    for instance in section.clone().into_iter().flatten() {
        if let Instance::Instantiate { module_index, .. } = instance
            && let Some((_, times)) = modules.get_mut(module_index as usize)
        {
            *times += 1;
        }
    }
}

/// Whether a section passes a module on to where it is not defined.
fn hands_modules(payload: &Payload<'_>) -> bool {
    let is_module = |kind: &ComponentExternalKind| *kind == ComponentExternalKind::Module;
    match payload {
        Payload::ComponentImportSection(section) => {
            let mut imports = section.clone().into_iter().flatten();
            imports.any(|import| matches!(import.ty, ComponentTypeRef::Module(_)))
        }
        Payload::ComponentExportSection(section) => {
            let mut exports = section.clone().into_iter().flatten();
            exports.any(|export| is_module(&export.kind))
        }
        Payload::ComponentAliasSection(section) => {
            let mut aliases = section.clone().into_iter().flatten();
            aliases.any(|alias| match alias {
                ComponentAlias::InstanceExport { kind, .. } => is_module(&kind),
                ComponentAlias::Outer { kind, .. } => kind == ComponentOuterAliasKind::CoreModule,
                ComponentAlias::CoreInstanceExport { .. } => false,
            })
        }
        Payload::ComponentInstanceSection(section) => {
            let mut instances = section.clone().into_iter().flatten();
            instances.any(|instance| match instance {
                ComponentInstance::Instantiate { args, .. } => args.iter().any(|arg| is_module(&arg.kind)),
                ComponentInstance::FromExports(exports) => {
                    exports.iter().any(|export| is_module(&export.kind))
                }
            })
        }
        _ => false,
    }
}

/// The bytes of types and the number of other items that a section declares.
fn declared(payload: &Payload<'_>, module: Option<&mut Module>) -> (u64, u64) {
    let mut unknown = Module::default();
    let module = module.unwrap_or(&mut unknown);
    let add = |count: &mut u64, more: u32| {
        *count = count.saturating_add(more.into());
        (0, u64::from(more))
    };
    match payload {
        Payload::TypeSection(section) => (length(section.range()), 0),
        Payload::CoreTypeSection(section) => (length(section.range()), 0),
        Payload::ComponentTypeSection(section) => (length(section.range()), 0),
        Payload::ImportSection(section) => add(&mut module.imports, section.count()),
        Payload::FunctionSection(section) => add(&mut module.functions, section.count()),
        Payload::GlobalSection(section) => add(&mut module.globals, section.count()),
        Payload::ExportSection(section) => add(&mut module.exports, section.count()),
        Payload::ElementSection(section) => {
            let counts = section.clone().into_iter().filter_map(|segment| {
                Some(match segment.ok()?.items {
                    ElementItems::Functions(items) => items.count(),
                    ElementItems::Expressions(_, items) => items.count(),
                })
            });
            let all = counts.fold(0, u32::saturating_add);
            add(&mut module.elements, all)
        }
        Payload::TableSection(section) => (0, section.count().into()),
        Payload::MemorySection(section) => (0, section.count().into()),
        Payload::DataSection(section) => (0, section.count().into()),
        Payload::InstanceSection(section) => (0, section.count().into()),
        Payload::ComponentInstanceSection(section) => (0, section.count().into()),
        Payload::ComponentAliasSection(section) => (0, section.count().into()),
        Payload::ComponentCanonicalSection(section) => (0, section.count().into()),
        Payload::ComponentImportSection(section) => (0, section.count().into()),
        Payload::ComponentExportSection(section) => (0, section.count().into()),
        _ => (0, 0),
    }
}

fn length(range: std::ops::Range<usize>) -> u64 {
    range.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core module with these sections.
    fn module(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        for (id, body) in sections {
            bytes.push(*id);
            bytes.extend(leb(body.len() as u32));
            bytes.extend(body);
        }
        bytes
    }

    fn leb(mut number: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    /// A section with this many equal entries.
    fn many(count: u32, entry: &[u8]) -> Vec<u8> {
        let mut body = leb(count);
        (0..count).for_each(|_| body.extend(entry));
        body
    }

    /// A component with these sections.
    fn component(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = module(sections);
        bytes[4..8].copy_from_slice(&[0x0d, 0, 1, 0]);
        bytes
    }

    const MODULE: u8 = 1;
    const INSTANCE: u8 = 2;
    const COMPONENT: u8 = 4;
    const ALIAS: u8 = 6;

    /// Each instance takes 1,600 bytes.
    fn globals() -> Vec<u8> {
        module(&[(6, many(100, &[0x7f, 0, 0x41, 0, 0x0b]))])
    }

    #[test]
    fn the_bytes_of_all_instances_are_summed() {
        let none = component(&[(MODULE, globals())]);
        assert_eq!(instances(&none), Ok(0));
        let three = component(&[(MODULE, globals()), (INSTANCE, many(3, &[0, 0, 0]))]);
        assert_eq!(instances(&three), Ok(4_800));
        let second = component(&[
            (MODULE, module(&[])),
            (MODULE, globals()),
            (INSTANCE, many(5, &[0, 0, 0])),
            (INSTANCE, many(2, &[0, 1, 0])),
        ]);
        assert_eq!(instances(&second), Ok(3_200));
    }

    #[test]
    fn modules_that_others_instantiate_count_as_often_as_there_can_be_instances() {
        let inner = component(&[(MODULE, globals())]);
        assert_eq!(instances(&component(&[(COMPONENT, inner)])), Ok(64 * 1_600));
        // The inner component knows the outer one's module 0.
        let knows = component(&[(ALIAS, many(1, &[0, 0x11, 2, 1, 0]))]);
        let outer = component(&[(MODULE, globals()), (COMPONENT, knows)]);
        assert_eq!(instances(&outer), Ok(64 * 1_600));
    }

    #[test]
    fn functions_that_tables_can_call_count_and_others_do_not() {
        let functions = |segments: &[(u8, Vec<u8>)]| {
            let mut sections = vec![(1, many(1, &[0x60, 0, 0])), (3, many(1_000, &[0]))];
            sections.extend_from_slice(segments);
            sections.push((10, many(1_000, &[2, 0, 0x0b])));
            component(&[(MODULE, module(&sections)), (INSTANCE, many(1, &[0, 0, 0]))])
        };
        assert_eq!(instances(&functions(&[])), Ok(0));
        // All of them are declared as callable.
        let mut segment = vec![1, 3, 0];
        segment.extend(many(1_000, &[0]));
        assert_eq!(
            instances(&functions(&[(9, segment)])),
            Ok(1_000 * (CALLABLE + ELEMENT))
        );
    }

    #[test]
    fn a_policy_with_very_many_types_is_refused() {
        let types = module(&[(1, many(100_000, &[0x60, 0, 0]))]);
        let refused = instances(&types).expect_err("too many");
        assert!(refused.contains("the types take 300003 bytes"), "{refused}");
    }

    #[test]
    fn a_manifest_is_found_in_the_outermost_and_only_once() {
        let section = |name: &str| {
            let mut body = leb(name.len() as u32);
            body.extend(name.as_bytes());
            body.extend(b"{}");
            (0, body)
        };
        let (named, other) = (section(MANIFEST), section("name"));
        let found = Ok(Some(b"{}".to_vec()));
        assert_eq!(manifest(&module(&[other.clone(), named.clone()])), found);
        assert_eq!(manifest(&component(std::slice::from_ref(&named))), found);
        assert_eq!(manifest(&module(&[other])), Ok(None));
        let inner = component(&[(MODULE, module(std::slice::from_ref(&named)))]);
        assert_eq!(manifest(&inner), Ok(None));
        let twice = manifest(&module(&[named.clone(), named])).expect_err("two");
        assert!(twice.contains("two sections polity.manifest"), "{twice}");
    }

    #[test]
    fn what_cannot_be_read_is_left_to_the_compiler() {
        assert_eq!(instances(b""), Ok(0));
        assert_eq!(
            instances(&module(&[(1, many(100_000, &[0x60, 0, 0]))])[..100]),
            Ok(0)
        );
    }
}
