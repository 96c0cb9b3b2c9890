//! The attribute `#[polity_sdk::policy]`.
//!
//! The attribute leaves the function as it is. For wasm targets it adds what makes the crate a component: the
//! exports of its role's world, the section that names the world, the allocator and the panic hook. Natively
//! it adds nothing, because the names of the exports do not link there.

use polity_contract::wit;
use proc_macro::TokenStream;
use proc_macro2::{Literal, Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Ident, ItemFn, Path, Token};
use wit_parser::{Resolve, UnresolvedPackageGroup};

/// Makes a function a policy.
///
/// `#[policy(lifecycle)]` and `#[policy(identity)]` take an `async fn` from a `Context` to `Result<Next,
/// Failure>` or `Result<Judgement, Failure>`. `#[policy(retry)]` takes an `fn` from a `RetryRequest` to a
/// `Wait` or a `Duration`. The same module needs a function `manifest() -> Manifest`; another one can be
/// named: `#[policy(lifecycle, manifest = my::manifest)]`.
#[proc_macro_attribute]
pub fn policy(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = syn::parse_macro_input!(item as ItemFn);
    let arguments = syn::parse_macro_input!(arguments as Arguments);
    expand(&arguments, &function)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Generates the types and functions of the contract with `wit-bindgen`: the three worlds as one, because
/// they share every type. Only `polity-sdk` uses this, in its module `bindings`.
///
/// The WIT is passed as text, so that the package of the SDK needs no file outside itself.
#[proc_macro]
pub fn bindings(_: TokenStream) -> TokenStream {
    let package = wit::PACKAGE;
    let (name, version) = package.split_once('@').unwrap_or((package, ""));
    let roles = ["lifecycle", "identity", "retry"]
        .map(|role| format!("include {name}/{role}-policy@{version};\n"))
        .concat();
    let items = wit::items();
    let source =
        format!("package polity:sdk;\nworld roles {{\n{roles}}}\npackage {package} {{\n{items}\n}}\n");
    let source = Literal::string(&source);
    quote! {
        ::wit_bindgen::generate!({
            inline: #source,
            world: "polity:sdk/roles",
            generate_all,
            pub_export_macro: true,
            default_bindings_module: "polity_sdk::bindings",
            runtime_path: "::polity_sdk::bindings::rt",
            additional_derives: [PartialEq, Eq, PartialOrd, Ord],
        });
    }
    .into()
}

/// The error if the build script is missing. Such a crate would work, but each step would cost more without being
/// noticed.
const NOT_LINKED: &str = "this policy would begin each step with a stack of 1 MiB: \
    let build.rs call polity_sdk_build::link(), with polity-sdk-build among the build-dependencies of Cargo.toml";

struct Arguments {
    role: Role,
    manifest: Path,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Lifecycle,
    Identity,
    Retry,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let role: Ident = input.parse()?;
        let role = match role.to_string().as_str() {
            "lifecycle" => Role::Lifecycle,
            "identity" => Role::Identity,
            "retry" => Role::Retry,
            _ => {
                return Err(syn::Error::new(
                    role.span(),
                    "expected lifecycle, identity or retry",
                ));
            }
        };
        let mut manifest = syn::parse_quote!(manifest);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
            let key: Ident = input.parse()?;
            if key != "manifest" {
                return Err(syn::Error::new(key.span(), "expected manifest = path"));
            }
            input.parse::<Token![=]>()?;
            manifest = input.parse()?;
        }
        Ok(Arguments { role, manifest })
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Lifecycle => "lifecycle",
            Role::Identity => "identity",
            Role::Retry => "retry",
        }
    }

    /// The implementation of the interface by the policy's function.
    fn implementation(self, policy: &Ident) -> Tokens {
        let contract = quote!(::polity_sdk::contract);
        match self {
            Role::Lifecycle => quote! {
                fn step(pass: #contract::Pass) -> #contract::Step {
                    ::polity_sdk::wasm::say_panics();
                    ::polity_sdk::step::lifecycle(pass, #policy)
                }
            },
            Role::Identity => quote! {
                fn step(pass: #contract::Pass) -> #contract::IdentityStep {
                    ::polity_sdk::wasm::say_panics();
                    ::polity_sdk::step::identity(pass, #policy)
                }
            },
            Role::Retry => quote! {
                fn decide(request: #contract::RetryRequest) -> #contract::Wait {
                    ::polity_sdk::wasm::say_panics();
                    ::polity_sdk::step::retry(request, #policy)
                }
            },
        }
    }
}

fn expand(arguments: &Arguments, function: &ItemFn) -> syn::Result<Tokens> {
    let signature = &function.sig;
    let asynchronous = arguments.role != Role::Retry;
    if signature.asyncness.is_some() != asynchronous {
        let expected = if asynchronous {
            "an async fn"
        } else {
            "a fn that is not async"
        };
        let message = format!("a policy of the {} role is {expected}", arguments.role.name());
        return Err(syn::Error::new_spanned(signature, message));
    }
    let (role, manifest) = (arguments.role.name(), &arguments.manifest);
    let implementation = arguments.role.implementation(&signature.ident);
    let interface = format_ident!("{role}");
    let export_info = exporter("policy_info");
    let export_role = exporter(role);
    let world =
        encoded_world(&format!("{role}-policy")).map_err(|e| syn::Error::new(Span::call_site(), e))?;
    let (size, section) = (world.len(), format!("component-type:polity:{role}-policy"));
    let world = Literal::byte_string(&world);

    Ok(quote! {
        #function

        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all, reason = "the glue of a component")]
        const _: () = {
            use ::polity_sdk::bindings::exports::polity::policy as exported;

            // The build script sets this variable. There is no other place for its instructions to the
            // linker.
            const _: () = assert!(option_env!("POLITY_LINKED").is_some(), #NOT_LINKED);

            #[global_allocator]
            static ALLOCATOR: ::polity_sdk::wasm::Bump = ::polity_sdk::wasm::Bump::new();

            #[unsafe(link_section = #section)]
            pub static WORLD: [u8; #size] = *#world;

            struct Component;

            impl exported::policy_info::Guest for Component {
                fn describe() -> ::std::string::String {
                    ::polity_sdk::wasm::say_panics();
                    #manifest().to_json()
                }
            }

            impl exported::#interface::Guest for Component {
                #implementation
            }

            exported::policy_info::#export_info!(
                Component with_types_in ::polity_sdk::bindings::exports::polity::policy::policy_info
            );
            exported::#interface::#export_role!(
                Component with_types_in ::polity_sdk::bindings::exports::polity::policy::#interface
            );
        };
    })
}

/// The macro with which `wit-bindgen` exports an interface.
fn exporter(interface: &str) -> Ident {
    let (_, version) = wit::PACKAGE.split_once('@').unwrap_or_default();
    format_ident!(
        "__export_polity_policy_{interface}_{}_cabi",
        version.replace('.', "_")
    )
}

/// The component type of a world, as `wit-component` expects it in a custom section.
fn encoded_world(name: &str) -> Result<Vec<u8>, String> {
    let mut resolve = Resolve::default();
    let source = format!("package {};\n{}", wit::PACKAGE, wit::items());
    let group = UnresolvedPackageGroup::parse("policy.wit", &source).map_err(|e| format!("{e:?}"))?;
    let package = resolve.push_group(group).map_err(|e| format!("{e:?}"))?;
    let world = resolve
        .select_world(&[package], Some(name))
        .map_err(|e| format!("{e:?}"))?;
    wit_component::metadata::encode(&resolve, world, wit_component::StringEncoding::UTF8, None)
        .map_err(|e| format!("{e:?}"))
}
