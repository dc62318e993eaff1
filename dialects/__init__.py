"""Dialects: the levels of the compiler as xDSL dialects, their verifiers, texts, attributes and shared facts.

`DIALECTS` is the lazy table of every dialect a module may use: importing it loads neither xDSL nor any dialect.
"""

DIALECTS: dict[str, str] = {
    "builtin": "xdsl.dialects.builtin:Builtin",
    "arith": "xdsl.dialects.arith:Arith",
    "math": "xdsl.dialects.math:Math",
    "scf": "xdsl.dialects.scf:Scf",
    "cf": "xdsl.dialects.cf:Cf",
    "func": "xdsl.dialects.func:Func",
    "memref": "xdsl.dialects.memref:MemRef",
    "tensor": "xdsl.dialects.tensor:Tensor",
    "tile": "tesela.dialects.tile:Tile",
    "async": "tesela.dialects.async_copy:Async",
    "layout": "tesela.dialects.layout_attrs:Layout",
    "ptx": "tesela.dialects.ptx:Ptx",
}
"""Dialect name -> 'module:attribute' of its `Dialect` object, imported when a text first names the dialect."""
