#!/usr/bin/env python3
"""Tests of tools/checks: what is counted, and that every gate on the structure can fail."""
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "checks"))
sys.path.insert(0, str(ROOT / "tools"))

import commands  # noqa: E402
import cpp_outline  # noqa: E402
import measure_tree  # noqa: E402
import structure  # noqa: E402
from compilation import Compilation, Unavailable  # noqa: E402
from source_tree import SourceTree  # noqa: E402


def outline(text):
    return cpp_outline.outline(text, "room/file.h")


def only_class(text):
    (found,) = outline(text).classes
    return found


def class_with(methods, fields, name="Large"):
    body = [f"  void Method{i}();" for i in range(methods)] + [f"  int field{i}_ = 0;" for i in range(fields)]
    return f"class {name} {{\n public:\n" + "\n".join(body) + "\n};\n"


def outlines(text, file="room/file.h"):
    return {file: cpp_outline.outline(text, file)}


class CountsOfMembers(unittest.TestCase):
    def test_private_static_overloaded_and_inline_functions_are_methods(self):
        found = only_class("""
            namespace tandem {
            class A final : public Base<int, B> {
             public:
              static absl::StatusOr<int> Make(const std::function<void(int)>& f = [] { return; });
              void Do(int a) const override { if (a) { Do(a - 1); } }
              void Do(std::span<const int> a);
              virtual bool Ready() const = 0;
              template <class T> requires std::integral<T> T Get() const;
              friend bool operator==(const A&, const A&) = default;
             private:
              bool operator<(const A& other) const;
              void operator()(int a) { a_ = a; }
              explicit operator bool() const;
              auto Last() const -> std::vector<int>;
            };
            }""")
        self.assertEqual(found.methods, ["Make", "Do", "Do", "Ready", "Get", "operator<", "operator()",
                                         "operator bool", "Last"])
        self.assertEqual(found.fields, [])

    def test_constructors_destructors_and_deleted_or_defaulted_functions_are_no_methods(self):
        found = only_class("""
            class A {
              A() : b_{1}, c_(Make<int>({2})) { Start(); }
              explicit A(int);
              A(const A&) = delete;
              A& operator=(const A&) = default;
              ~A();
              int b_;
              int c_;
            };""")
        self.assertEqual((found.methods, found.fields), ([], ["b_", "c_"]))

    def test_data_members_are_fields_and_constants_are_not(self):
        found = only_class("""
            struct A {
              static constexpr int kSize = 3;
              absl::flat_hash_map<int, std::pair<int, int>> map ABSL_GUARDED_BY(mutex_);
              mutable absl::Mutex mutex_;
              void (*callback)(int, int) = nullptr;
              int a = 1, b = 2;
              std::array<int, 3> c{1, 2, 3};
              [[maybe_unused]] uint32_t bits : 3 = 0;
              enum class Color : uint8_t { kRed, kBlue } color = Color::kRed;
              union { int whole; float real; };
              using Alias = int;
              struct Announced;
              static_assert(sizeof(int) == 4, "a, b");
            };""")
        self.assertEqual(found.fields, ["map", "mutex_", "callback", "a", "b", "c", "bits", "color", "whole", "real"])

    def test_members_of_a_nested_class_count_for_it_alone(self):
        inner, outer = outline("struct A { struct B { int x; void F(); } b; void G(); };").classes
        self.assertEqual((inner.name, inner.methods, inner.fields), ("A::B", ["F"], ["x"]))
        self.assertEqual((outer.name, outer.methods, outer.fields), ("A", ["G"], ["b"]))

    def test_comments_strings_and_branches_not_taken_hide_nothing_else(self):
        found = only_class("""
            class A {
              /* void Gone(); } */ // int gone;
              const char* brace = "}"; char quote = '"'; int big = 1'000;
              std::string raw = R"x(}; class B {)x";
            #if 0
              int never;
            #elif defined(X)
              int first;
            #else
              int second;
            #endif
              int last;
            };""")
        self.assertEqual(found.fields, ["brace", "quote", "big", "raw", "first", "last"])


class LengthsOfFunctions(unittest.TestCase):
    def test_a_function_reaches_from_its_declaration_to_its_closing_brace(self):
        found = outline("\nint A::F(\n    int a) const {\n  auto f = [] {\n    return 1;\n  };\n  return f();\n}\n")
        self.assertEqual([(one.name, one.lines) for one in found.functions], [("A::F", 7)])

    def test_a_test_is_called_after_its_suite_and_itself(self):
        found = outline("TEST_F(Suite, DoesIt) {\n}\n")
        self.assertEqual([one.name for one in found.functions], ["Suite.DoesIt"])

    def test_a_class_inside_a_function_is_seen(self):
        found = outline("void F() {\n  struct Local { int a; };\n  for (;;) { }\n}\nvoid G() { }\n")
        self.assertEqual([one.name for one in found.classes], ["Local"])
        self.assertEqual([one.name for one in found.functions], ["F", "G"])


class ClassGate(unittest.TestCase):
    def test_a_class_at_the_limits_passes(self):
        self.assertEqual(structure.check_classes(outlines(class_with(25, 15)), {}), [])

    def test_one_method_or_one_field_more_fails(self):
        for methods, fields in ((26, 0), (1, 16)):
            (problem,) = structure.check_classes(outlines(class_with(methods, fields)), {})
            self.assertIn(f"room/file.h:1: Large has {methods} methods and {fields} fields", problem)

    def test_a_record_may_have_any_number_of_fields(self):
        self.assertEqual(structure.check_classes(outlines(class_with(0, 40)), {}), [])

    def test_a_listed_class_may_not_grow(self):
        tree = outlines(class_with(30, 3))
        self.assertEqual(structure.check_classes(tree, {("room", "Large"): (30, 3)}), [])
        self.assertIn("allows 29", structure.check_classes(tree, {("room", "Large"): (29, 3)})[0])

    def test_a_listed_class_that_shrank_or_went_must_be_taken_off_the_list(self):
        listed = {("room", "Large"): (31, 3), ("room", "Gone"): (40, 1)}
        shrank, gone = structure.check_classes(outlines(class_with(30, 3)), listed)
        self.assertIn("still allows 31 and 3: shorten it", shrank)
        self.assertIn("Gone in room is within the limits, or gone", gone)

    def test_shrinking_the_list_never_adds_or_raises(self):
        text = class_with(30, 3) + class_with(28, 2, "New")
        listed = {("room", "Large"): (29, 4), ("room", "Gone"): (40, 1)}
        self.assertEqual(structure.shrunk_classes(outlines(text), listed), {("room", "Large"): (29, 3)})


class NameGate(unittest.TestCase):
    @staticmethod
    def problems(*texts):
        tree = {f"room/{i}.h": cpp_outline.outline(text, f"room/{i}.h") for i, text in enumerate(texts)}
        return structure.check_names(tree)

    def test_one_name_in_two_files_of_a_namespace_fails(self):
        (problem,) = self.problems("namespace a {\nclass X { int i; };\n}", "namespace a {\n\nstruct X {};\n}")
        self.assertEqual(problem, "a::X is defined in room/0.h:2, room/1.h:3")

    def test_other_namespaces_classes_and_announcements_do_not_collide(self):
        self.assertEqual(self.problems(
            "namespace a {\nclass X {};\nclass Y { struct Z {}; };\n}",
            "namespace a::b {\nclass X {};\n}",
            "namespace a {\nnamespace {\nclass X {};\n}\nclass X;\nclass W { struct Z {}; };\nstruct X about{};\n}"), [])


class FunctionGate(unittest.TestCase):
    @staticmethod
    def function_of(lines):
        return outlines("void F() {\n" + "  Do();\n" * (lines - 2) + "}\n")

    def test_sixty_lines_pass_and_one_more_fails(self):
        self.assertEqual(structure.check_functions(self.function_of(60), {}), [])
        self.assertIn("F has 61 lines", structure.check_functions(self.function_of(61), {})[0])

    def test_a_listed_function_may_shrink_and_not_grow(self):
        listed = {("room", "F"): 70}
        self.assertEqual(structure.check_functions(self.function_of(70), listed), [])
        self.assertIn("allows 70", structure.check_functions(self.function_of(71), listed)[0])
        self.assertIn("shorten it", structure.check_functions(self.function_of(69), listed)[0])
        self.assertEqual(structure.shrunk_functions(self.function_of(69), listed), {("room", "F"): 69})
        self.assertIn("shorten the list", structure.check_functions(self.function_of(60), listed)[0])


class CircleGate(unittest.TestCase):
    def includes(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            names = {name.replace("_", "/", 1).replace("_", "."): text for name, text in files.items()}
            for name, text in names.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            return SourceTree(folder, names).includes()

    def test_a_header_and_its_source_are_one_unit(self):
        includes = self.includes(room_a_h="", room_a_cc='#include "room/a.h"\n#include "room/b.h"\n',
                                 room_b_h='#include "room/a.h"\n')
        (problem,) = structure.check_circles(includes, [])
        self.assertIn("new in it: room/a, room/b", problem)
        self.assertIn("room/a -> room/b -> room/a", problem)
        self.assertEqual(structure.check_circles(includes, [{"room/a", "room/b"}]), [])

    def test_a_chain_is_no_circle(self):
        includes = self.includes(room_a_h='#include "room/b.h"\n', room_b_h='#include "c.h"\n', room_c_h="")
        self.assertEqual(includes["room/b.h"], {"room/c.h"})
        self.assertEqual(structure.check_circles(includes, []), [])

    def test_a_known_circle_may_not_grow(self):
        includes = self.includes(room_a_h='#include "room/b.h"\n', room_b_h='#include "room/c.h"\n',
                                 room_c_h='#include "room/a.h"\n')
        (problem,) = structure.check_circles(includes, [{"room/a", "room/b"}])
        self.assertIn("3 units include each other in a circle, new in it: room/c", problem)

    def test_a_known_circle_that_broke_up_must_be_taken_off_the_list(self):
        includes = self.includes(room_a_h='#include "room/b.h"\n', room_b_h='#include "room/a.h"\n', room_c_h="")
        listed = [{"room/a", "room/b", "room/c"}]
        self.assertIn("no longer in a circle: room/c", structure.check_circles(includes, listed)[0])
        self.assertEqual(structure.shrunk_circles(includes, listed), [{"room/a", "room/b"}])


class ListOfExceptions(unittest.TestCase):
    def test_what_is_written_is_read_again(self):
        text = "class room A::B 30 2\nfunction room F 70\ncircle room/a room/b\n"
        self.assertEqual("".join(line + "\n" for line in structure.read_exceptions("# why\n" + text).lines()), text)

    def test_a_line_that_says_nothing_is_refused_by_its_number(self):
        with self.assertRaisesRegex(ValueError, "line 2: 'class room A'"):
            structure.read_exceptions("# why\nclass room A\n")


class RunsOfTools(unittest.TestCase):
    """On a tree of one source and one header."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("a.h", "int a;\n")
        self.write("a.cc", '#include "a.h"\n')

    def write(self, name, text):
        (self.root / name).write_text(text)

    def compilation(self):
        return Compilation(self.root, self.root, {"a.cc": ["clang++", "-std=c++20", "a.cc"]})

    def test_a_source_that_passed_runs_again_only_when_it_or_what_it_includes_changed(self):
        tool = {"a.cc": ["grep", "-q", "a", "a.h"]}
        self.assertEqual(self.compilation().check("tool", tool, 1), ([], 1))
        self.assertEqual(self.compilation().check("tool", tool, 1), ([], 0))
        self.assertEqual(self.compilation().check("tool", tool, 1, "another version"), ([], 1))
        self.write("a.h", "int a, b;\n")
        self.assertEqual(self.compilation().check("tool", tool, 1), ([], 1))

    def test_a_source_that_failed_runs_again(self):
        tool = {"a.cc": ["ls", "missing"]}
        for _ in range(2):
            (problem,), ran = self.compilation().check("tool", tool, 1)
            self.assertIn("missing", problem)
            self.assertEqual(ran, 1)

    def test_a_tool_that_is_not_there_is_a_problem(self):
        (problem,), _ = self.compilation().check("tool", {"a.cc": ["no-such-tool"]}, 1)
        self.assertIn("no-such-tool is not installed: run tools/install_deps.sh core check", problem)

    @unittest.skipUnless(shutil.which("clang++"), "needs clang")
    def test_a_guarded_field_that_is_read_without_its_mutex_fails(self):
        self.write("a.h", """// ABSL_GUARDED_BY
            struct __attribute__((capability("mutex"))) Mutex {
              void Lock() __attribute__((acquire_capability()));
              void Unlock() __attribute__((release_capability()));
            };
            struct A { Mutex mutex; int count __attribute__((guarded_by(mutex))) = 0; };
        """)
        self.write("a.cc", '#include "a.h"\nint F(A& a) { return a.count; }\n')
        (problem,), guarded, _ = commands.check_locks(self.compilation(), 1)
        self.assertIn("reading variable 'count' requires holding mutex 'a.mutex'", problem)
        self.assertEqual(guarded, 1)
        self.write("a.cc", """#include "a.h"
            int F(A& a) {
              a.mutex.Lock();
              const int count = a.count;
              a.mutex.Unlock();
              return count;
            }""")
        self.assertEqual(commands.check_locks(self.compilation(), 1), ([], 1, 1))

    def test_a_source_that_reaches_no_mutex_is_not_read(self):
        self.assertEqual(commands.check_locks(self.compilation(), 1), ([], 0, 0))

    def test_clang_format_names_the_files_that_it_would_change(self):
        try:
            tool = commands.pinned("clang-format")
        except (FileNotFoundError, Unavailable) as reason:
            self.skipTest(str(reason))
        self.write("a.h", "int   a ;\n")
        self.assertEqual(commands.differing(tool, ["a.h", "a.cc"], self.root), ["a.h"])


class Measures(unittest.TestCase):
    def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(self):
        self.assertEqual(measure_tree.summary(range(1, 11), (50, 90, 100)), "5/9/10")

    def test_the_files_of_a_class_are_those_that_define_its_members(self):
        tree = {"room/a.h": cpp_outline.outline("class A { void F(); void G(); };", "room/a.h")}
        for file, text in (("room/a.cc", "void A::F() {}"), ("room/b.cc", "void A::G() {}"),
                           ("room/c.cc", "void F() {}")):
            tree[file] = cpp_outline.outline(text, file)
        (described,) = tree["room/a.h"].classes
        self.assertEqual(measure_tree.files_of_class(described, tree), {"room/a.h", "room/a.cc", "room/b.cc"})


if __name__ == "__main__":
    unittest.main()
