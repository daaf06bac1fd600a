//! Names of modules that a session may not take: those of Python's own, and of test tools.

use crate::paths::below;

/// The entry of `[guard] protected` that means new modules with the name of one of Python's own,
/// or of a test tool: made at the root of a project they are found first.
pub const PYTHON_MODULES: &str = "@python-modules";

const PYTHON_MODULE_NAMES: &str = "__future__ _aix_support _asyncio _bisect _bootsubprocess _bz2 _collections_abc _colorize \
    _compat_pickle _compression _csv _ctypes _datetime _decimal _elementtree _hashlib _heapq \
    _json _lzma _markupbase _opcode _opcode_metadata _osx_support _pickle _posixsubprocess \
    _py_abc _py_warnings _pydatetime _pydecimal _pyio _pylong _pyrepl _pytest _queue _random \
    _sitebuiltins _socket _sqlite3 _ssl _statistics _strptime _struct _sysconfigdata \
    _threading_local _uuid _weakrefset _zoneinfo abc aifc annotationlib argparse \
    array ast asynchat asyncio asyncore atexit audioop base64 bdb binascii bisect builtins bz2 \
    cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys \
    compileall compression concurrent configparser contextlib contextvars copy copyreg coverage \
    crypt csv ctypes curses dataclasses datetime dbm decimal difflib dis distutils doctest email \
    encodings ensurepip enum errno exceptiongroup faulthandler fcntl filecmp fileinput fnmatch \
    fractions ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip \
    hashlib heapq hmac html http hypothesis idlelib imaplib imghdr imp importlib iniconfig \
    inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma mailbox \
    mailcap marshal math mimetypes mmap mock modulefinder msilib msvcrt multiprocessing netrc \
    nis nntplib nose nose2 nox nt ntpath nturl2path numbers opcode operator optparse os \
    ossaudiodev packaging pathlib pdb pickle pickletools pip pipes pkg_resources pkgutil \
    platform plistlib pluggy poplib posix posixpath pprint profile pstats pty pwd py py_compile \
    pyclbr pydoc pydoc_data pyexpat pygments pytest pytest_cov queue quopri random re readline \
    reprlib resource rlcompleter runpy sched secrets select selectors setuptools shelve shlex \
    shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile \
    sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau \
    symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios textwrap \
    threading time timeit tkinter token tokenize tomli tomllib tox trace traceback tracemalloc \
    tty turtle types typing typing_extensions unicodedata unittest urllib uu uuid \
    venv warnings wave weakref webbrowser wheel winreg winsound wsgiref xdist xdrlib xml xmlrpc \
    zipapp zipfile zipimport zlib zoneinfo";

/// Whether a path is a module at the root of a project, or in a folder of it, that takes the place
/// of one of Python's own or of a test tool's.
pub fn is_python_module<P: AsRef<[u8]> + ?Sized>(path: &P, folder: &str) -> bool {
    let rest = match folder {
        "" => Some(path.as_ref()),
        folder => below(path.as_ref(), folder),
    };
    let Some(rest) = rest.and_then(|rest| std::str::from_utf8(rest).ok()) else {
        return false;
    };
    // Compiled ones and extensions count as well: `json.cpython-311-x86_64-linux-gnu.so`.
    let is_code = |file: &str| {
        let ending = file.rsplit_once('.').map(|(_, ending)| ending);
        matches!(ending, Some("py" | "pyc" | "so"))
    };
    let name = match rest.split_once('/') {
        None if is_code(rest) => rest.split('.').next().unwrap_or(rest),
        // Without this file a folder does not take the place of a package.
        Some((folder, file)) if file.starts_with("__init__.") && is_code(file) => folder,
        _ => return false,
    };
    // Plugins of pytest are called so.
    name.starts_with("pytest_") || PYTHON_MODULE_NAMES.split(' ').any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_in_the_place_of_others() {
        for (path, folder, expected) in [
            ("unittest.py", "", true),
            ("unittest/__init__.py", "", true),
            ("json.cpython-311-x86_64-linux-gnu.so", "", true),
            ("pytest.pyc", "", true),
            ("sums.py", "", false),
            ("unittest.md", "", false),
            ("src/unittest.py", "", false),
            ("api/unittest.py", "api", true),
            ("api2/unittest.py", "api", false),
            ("test/__init__.py", "", false),
            ("unittest", "", false),
            ("__future__.py", "", true),
            ("pygments/__init__.py", "", true),
            ("pytest_plugin.py", "", true),
            ("html/index.html", "", false),
            ("site/pages.py", "", false),
        ] {
            assert_eq!(
                is_python_module(path, folder),
                expected,
                "{path} in {folder:?}"
            );
        }
    }
}
