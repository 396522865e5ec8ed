# ruff: noqa: B019, E741, E742, N801, PIE796 -- programs have all of that
"""A program without a ``__main__`` guard that defines environments in every way Python has.

It prints what the environments answer in this process, and what they answer in a worker.
"""

import abc
import asyncio
import collections
import contextlib
import dataclasses
import enum
import functools
import json
import operator
import os
import types
import typing
import weakref

import gymnasium
import numpy as np
from gymnasium import spaces

import vecwrap


class Base(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(self.value()), False, False, {}

    def value(self):
        return 1


class LruMethod(Base):
    @functools.cache
    def value(self):
        return 2


class LruBare(Base):
    @functools.lru_cache
    def value(self):
        return 2


class LruTyped(Base):
    @functools.lru_cache(maxsize=3, typed=True)
    def part(self, x):
        return x

    def value(self):
        self.part(1)
        self.part(1.0)
        i = self.part.cache_info()
        return i.currsize * 10 + self.part.cache_parameters()["maxsize"]


@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Recursive(Base):
    def value(self):
        return fib(30)


@functools.cache
def even(n):
    return n == 0 or odd(n - 1)


@functools.cache
def odd(n):
    return n != 0 and even(n - 1)


class Mutual(Base):
    def value(self):
        return even(10)


class Static(Base):
    @staticmethod
    @functools.cache
    def value():
        return 3


class ClassM(Base):
    level = 7

    @classmethod
    @functools.cache
    def value(cls):
        return cls.level


class CachedProp(Base):
    @functools.cached_property
    def v(self):
        return 5

    def value(self):
        return self.v


class PropCached(Base):
    @property
    @functools.cache
    def v(self):
        return 5

    def value(self):
        return self.v


class SuperCached(Base):
    @functools.cache
    def value(self):
        return super().value() + 1


@functools.singledispatch
def show(x):
    return 0


@show.register
def _(x: int):
    return 1


@show.register(str)
def _(x):
    return 2


class Single(Base):
    def value(self):
        return show(1) * 100 + show("a") * 10 + show(2.0)


class SingleM(Base):
    @functools.singledispatchmethod
    def f(self, x):
        return 0

    @f.register
    def _(self, x: int):
        return 1

    @f.register
    @classmethod
    def _(cls, x: str):
        return 2

    def value(self):
        return self.f(1) * 100 + self.f("a") * 10 + self.f(2.0)


def deco(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k) + 1

    return inner


class Wrapped(Base):
    @deco
    def value(self):
        return 1


class WrappedCache(Base):
    @deco
    @functools.cache
    def value(self):
        return 1


class CacheWrapped(Base):
    @functools.cache
    @deco
    def value(self):
        return 1


class Twice(Base):
    @functools.cache
    @functools.lru_cache(2)
    def value(self):
        return 1


T = typing.TypeVar("T")
P = typing.ParamSpec("P")
N = typing.NewType("N", int)
Ts = typing.TypeVarTuple("Ts")


class Box_(typing.Generic[T]):
    def __init__(self, x: T):
        self.x = x


class Gen(Base, typing.Generic[T, P]):
    def value(self):
        return Box_[int](N(4)).x


class GenNew(Base):
    kind = N
    ts = Ts
    p = P
    alias = typing.Callable[P, T]
    l: "list[N]" = None

    def value(self):
        return self.kind(3)


def typed(f: typing.Callable[P, T]) -> typing.Callable[P, T]:
    return f


class GenP(Base):
    @typed
    def value(self):
        return 3


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int = 1
    y: int = dataclasses.field(default=2)


@dataclasses.dataclass(order=True)
class Item:
    p: int
    q: list = dataclasses.field(default_factory=list)

    @functools.cached_property
    def r(self):
        return self.p + 1


class Data(Base):
    def value(self):
        return Point(3).y + max(Item(1), Item(2)).r + dataclasses.replace(Point(1), x=5).x


@dataclasses.dataclass
class DataEnv(Base):
    size: int = 4

    def value(self):
        return self.size


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    ROUGE = 1

    def v(self):
        return self.value * 10


class Planet(enum.Enum):
    EARTH = (1.0, 2.0)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius


class Coord(bytes, enum.Enum):
    def __new__(cls, value, label):
        obj = bytes.__new__(cls, [value])
        obj._value_ = value
        obj.label = label
        return obj

    PX = (0, "P.X")


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    RW = R | W


class I(enum.IntEnum):
    A = 1


class S(enum.StrEnum):
    A = enum.auto()


class Enums(Base):
    def value(self):
        assert [Color["ROUGE"], Color.ROUGE, Color(1)] == [Color.RED] * 3
        assert (list(Color.__members__), Color.ROUGE.name) == (["RED", "GREEN", "ROUGE"], "RED")
        assert (Perm.RW, Perm["RW"], Perm.RW.name) == (Perm.R | Perm.W, Perm.RW, "RW")
        return Color.ROUGE.v() + I.A + Perm.RW.value + len(S.A)


class EnumInit(Base):
    def value(self):
        return Planet.EARTH.mass


class EnumNew(Base):
    def value(self):
        return len(Coord.PX.label)


@enum.unique
class Act(enum.IntEnum):
    L = 0
    R = 1

    @property
    @functools.cache
    def opposite(self):
        return Act(1 - self)

    @classmethod
    @functools.lru_cache
    def all(cls):
        return tuple(cls)


class EnumCached(Base):
    def value(self):
        return Act.L.opposite + len(Act.all())


class Outer:
    class Inner:
        @functools.cache
        def f(self):
            return 6

    class Env(Base):
        @functools.cache
        def value(self):
            return Outer.Inner().f()


class NT(typing.NamedTuple):
    a: int
    b: int = 2

    @functools.cache
    def total(self):
        return self.a + self.b


CNT = collections.namedtuple("CNT", "a b")


class Named(Base):
    def value(self):
        return NT(1).total() + CNT(1, 2).b


class Meta(type):
    made = []

    def __new__(m, name, bases, ns, **kw):
        c = super().__new__(m, name, bases, ns)
        c.tag = 9
        return c

    @functools.cache
    def all(cls):
        return cls.tag


class WithMeta(Base, metaclass=Meta):
    def value(self):
        return type(self).all()


class Abs(abc.ABC):
    @abc.abstractmethod
    def value(self): ...
    @property
    @abc.abstractmethod
    def thing(self): ...


class Concrete(Base, Abs):
    thing = 3

    @functools.lru_cache
    def value(self):
        return self.thing


class Proto(typing.Protocol):
    def value(self) -> int: ...


@typing.runtime_checkable
class RProto(typing.Protocol):
    def value(self) -> int: ...


class Prot(Base):
    def value(self):
        return int(isinstance(self, RProto))


class Sub(Base):
    subs = []

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        Sub.subs.append(cls.__name__)


class SubC(Sub):
    def value(self):
        return len(self.subs)


@contextlib.contextmanager
def ctx():
    yield 4


class Ctx(Base):
    @contextlib.contextmanager
    def inside(self):
        yield 5

    def value(self):
        with ctx() as a, self.inside() as b:
            return a + b


class Async(Base):
    async def co(self):
        return 3

    async def ag(self):
        yield 1

    def gen(self):
        yield from range(3)

    def value(self):
        async def main():
            return sum([x async for x in self.ag()]) + await self.co()

        return asyncio.run(main()) + sum(self.gen())


class PartialM(Base):
    def f(self, x):
        return x

    value = functools.partialmethod(f, 8)


class Slots(Base):
    __slots__ = ("q",)

    def value(self):
        self.q = 3
        return self.q


class Desc:
    def __set_name__(self, o, n):
        self.n = n

    def __get__(self, o, t=None):
        return len(self.n)


class Descr(Base):
    field = Desc()

    def value(self):
        return self.field


@functools.total_ordering
class Ord:
    def __init__(self, x):
        self.x = x

    def __eq__(self, o):
        return self.x == o.x

    def __lt__(self, o):
        return self.x < o.x


class Total(Base):
    def value(self):
        return Ord(2) >= Ord(1)


_cache = weakref.WeakKeyDictionary()
_vals = weakref.WeakValueDictionary()
_set = weakref.WeakSet()


class Weak(Base):
    def value(self):
        _cache[self] = 2
        _vals["a"] = self
        _set.add(self)
        return _cache[self] + len(_vals) + len(_set)


compute = functools.lru_cache(maxsize=8)(np.prod)
vec = np.vectorize(lambda x: x + 1)
length = functools.cache(len)


class Maker:
    def __init__(self, x):
        self.x = x


made = functools.cache(Maker)


class Builtins(Base):
    def value(self):
        return compute((2, 3)) + vec([1])[0] + length("abc") + made(3).x


class CacheAttr(Base):
    @functools.cache
    def value(self):
        return 1

    value.note = "hi"
    value_ = value


class Inst(Base):
    def __init__(self):
        self.f = functools.cache(self.g)

    def g(self):
        return 11

    def value(self):
        return self.f()


def local():
    @functools.cache
    def table():
        return 21

    class Local(Base):
        @functools.lru_cache
        def value(self):
            return table()

    return Local


Local = local()


class Op(Base):
    key = operator.itemgetter(1)

    def value(self):
        return self.key([1, 2])


class Match(Base):
    def value(self):
        match Point(1, 2):
            case Point(x=1):
                return 31


class Prop(Base):
    @property
    def p(self):
        return 1

    @p.setter
    def p(self, v):
        pass

    def value(self):
        return self.p


class TD(typing.TypedDict):
    a: int


NSP = types.SimpleNamespace(a=1, f=fib)


class Sn(Base):
    def value(self):
        return NSP.f(4) + NSP.a


class Err(Exception):
    def __init__(self, code):
        super().__init__("x")
        self.code = code


class Exc(Base):
    def value(self):
        try:
            raise Err(4)
        except Err as e:
            return e.code


class EmptyCell(Base):
    def value(self):
        def f():
            nonlocal g
            return g

        g = 3
        return f()


class Walrus(Base):
    table = {k: functools.cache(lambda k=k: k) for k in range(3)}

    def value(self):
        return sum(f() for f in self.table.values())


class GlobalEnum(Base):
    a = Color.RED
    d = {Color.RED: 1, Act.L: 2}

    def value(self):
        return self.d[Color(1)] + self.d[Act.L] + (self.a is Color.RED)


class Alias(Base):
    def value(self):
        return isinstance(3, int | str) + isinstance([], list)


class Keyed(Base):
    sizes = {}

    def __init_subclass__(cls, *, size, **kw):
        super().__init_subclass__(**kw)
        Keyed.sizes[cls.__name__] = size
        cls.size = size


class KeyedA(Keyed, size=5):
    def value(self):
        return self.size + len(self.sizes)


class KeyedB(KeyedA, size=7):
    def value(self):
        return super().value() + self.size


class Strict(abc.ABCMeta):
    kinds = []

    def __new__(m, name, bases, ns, *, key=None):
        if "value" not in ns:
            raise KeyError("value")
        c = super().__new__(m, name, bases, ns)
        m.kinds.append(name)
        return c

    def __init__(cls, name, bases, ns, *, key):
        super().__init__(name, bases, ns)
        cls.key = key


class StrictA(Base, metaclass=Strict, key=3):
    def value(self):
        return self.key + len(type(type(self)).kinds) + isinstance(3, StrictA)


StrictA.register(int)


class Hooked(Base, typing.Generic[T]):
    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        cls.hooked = True


class HookedA(Hooked[int]):
    def value(self):
        return self.hooked + len(self.__orig_bases__)


class HookedG(Hooked[T]):
    def value(self):
        return len(self.__parameters__) + (HookedG[int].__args__ == (int,))


METHOD = os.environ["METHOD"]
if METHOD == "fresh" or __name__ == "__main__":
    kinds = [
        kind
        for kind in list(globals().values())
        if isinstance(kind, type) and issubclass(kind, Base)
    ]
    for backend in (
        {"backend": "dummy"},
        {"backend": "subprocess", "workers": 1, "start_method": METHOD},
    ):
        with vecwrap.build([*kinds, Outer.Env], **backend) as env:
            env.reset(seed=1)
            env.step([0] * env.num_envs)
            # Classes that it has already.
            env.set_attr("given", {"all": (Color.GREEN, Act.L, Point(3), fib, Color, Item(2))})
            assert env.get_attr("given")[0]["all"][0] is Color.GREEN
            names = [kind.__name__ for kind in kinds]
            print(
                json.dumps(
                    dict(zip([*names, "Outer.Env"], map(float, env.call("value")), strict=True))
                )
            )
