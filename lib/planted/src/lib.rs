//! Declares bugs that tests plant on purpose, one at a time, to prove that a simulation finds each.

/// Declares the bugs of a crate as an enum with the list `ALL`, and two functions. `plant` makes a bug active in this
/// thread; code that can have a bug calls `planted(Bug::…)`.
///
/// The crate that uses the macro must have a feature `planted`. Without this feature there is no `plant`, and `planted`
/// is `false` at compile time, so no code of a bug is compiled.
#[macro_export]
macro_rules! bugs {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$what:meta])* $bug:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$what])* $bug,)*
        }

        impl $name {
            pub const ALL: [$name; [$($name::$bug),*].len()] = [$($name::$bug),*];
        }

        #[cfg(feature = "planted")]
        ::std::thread_local! {
            static PLANTED: ::std::cell::Cell<Option<$name>> = const { ::std::cell::Cell::new(None) };
        }

        /// Plants a bug in this thread, or removes it.
        #[cfg(feature = "planted")]
        pub fn plant(bug: Option<$name>) {
            PLANTED.set(bug);
        }

        /// Whether this bug is planted in this thread.
        #[cfg(feature = "planted")]
        pub fn planted(bug: $name) -> bool {
            PLANTED.get() == Some(bug)
        }

        /// Whether this bug is planted in this thread.
        #[cfg(not(feature = "planted"))]
        pub const fn planted(_: $name) -> bool {
            false
        }
    };
}
