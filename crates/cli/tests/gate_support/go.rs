//! `go test`.

use super::{GateTool, GuardedProject};

pub(crate) const GO: GuardedProject = GuardedProject {
    kind: "go",
    guard: &["go", "test", "./..."],
    tool: GateTool::System(&["go"]),
    files: &[
        (
            "go.mod",
            "module example.test/sums\n\ngo 1.19\n\nrequire example.test/check v1.0.0\n\nreplace example.test/check => ./check\n\nreplace example.test/left => ./left\n",
        ),
        ("left/go.mod", "module example.test/left\n\ngo 1.19\n"),
        ("left/left.go", "package left\n\nconst One = 1\n"),
        ("check/go.mod", "module example.test/check\n\ngo 1.19\n"),
        (
            "check/check.go",
            "package check\n\nfunc Equal(a, b int) bool { return a == b }\n",
        ),
        (
            "sums.go",
            "package sums\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Sub(a, b int) int { return 0 }\n",
        ),
        (
            "sums_test.go",
            "package sums\n\nimport (\n\t\"testing\"\n\n\t\"example.test/check\"\n)\n\nfunc TestAdds(t *testing.T) {\n\tif !check.Equal(Add(1, 2), 3) {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n\n\
             func TestSubs(t *testing.T) {\n\tif !check.Equal(Sub(3, 2), 1) {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
        ),
    ],
    fix: "sed -i 's/return 0/return a - b/' sums.go",
    redefined: &[
        (
            "go.work with another module of the tests",
            "mkdir fake; printf 'module example.test/check\\n\\ngo 1.19\\n' > fake/go.mod; \
             printf 'package check\\n\\nfunc Equal(a, b int) bool { return true }\\n' > fake/check.go; \
             printf 'go 1.19\\n\\nuse .\\n\\nreplace example.test/check => ./fake\\n' > go.work",
        ),
        (
            "a module of the tests that is replaced",
            "mkdir fake; printf 'module example.test/check\\n\\ngo 1.19\\n' > fake/go.mod; \
             printf 'package check\\n\\nfunc Equal(a, b int) bool { return true }\\n' > fake/check.go; \
             sed -i 's,=> ./check,=> ./fake,' go.mod",
        ),
        (
            "the same in brackets",
            "mkdir fake; printf 'module example.test/check\\n\\ngo 1.19\\n' > fake/go.mod; \
             printf 'package check\\n\\nfunc Equal(a, b int) bool { return true }\\n' > fake/check.go; \
             sed -i '/^replace/d' go.mod; printf 'replace (\\n\\texample.test/check => ./fake\\n\\texample.test/left => ./left\\n)\\n' >> go.mod",
        ),
        (
            "modules in vendor",
            "mkdir -p vendor/example.test/check; printf 'package check\\n\\nfunc Equal(a, b int) bool { return true }\\n' > vendor/example.test/check/check.go; \
             printf '# example.test/check v1.0.0 => ./check\\n## explicit; go 1.19\\nexample.test/check\\n# example.test/check => ./check\\n# example.test/left => ./left\\n' > vendor/modules.txt",
        ),
    ],
    unproven: &[
        (
            "an exit when product code is loaded",
            "sed -i 's/^func Sub.*/func init() { os.Exit(0) }\\n\\nfunc Sub(a, b int) int { return 0 }/; s/^package sums/package sums\\n\\nimport \"os\"/' sums.go",
        ),
        (
            "a TestMain that runs nothing",
            "printf 'package sums\\n\\nimport (\\n\\t\"os\"\\n\\t\"testing\"\\n)\\n\\nfunc TestMain(m *testing.M) { os.Exit(0) }\\n' > main_test.go",
        ),
        (
            "flags of the tests that product code sets",
            "sed -i 's/^func Sub.*/func init() { os.Args = append(os.Args[:1], \"-test.run=None\") }\\n\\nfunc Sub(a, b int) int { return 0 }/; s/^package sums/package sums\\n\\nimport \"os\"/' sums.go",
        ),
        (
            "a tag that is never set",
            "sed -i '1i //go:build never\\n' sums_test.go",
        ),
        (
            "tests for another system",
            "mv sums_test.go sums_windows_test.go",
        ),
        (
            "tests that go does not see",
            "mv sums_test.go _sums_test.go",
        ),
    ],
    told: &[
        (
            "a weakened test",
            "sed -i 's/Sub(3, 2), 1/Sub(3, 2), 0/' sums_test.go",
        ),
        (
            "a test that is skipped",
            "sed -i 's/^func TestSubs.*/func TestSubs(t *testing.T) {\\n\\tt.Skip()/' sums_test.go",
        ),
        (
            "a TestMain that leaves one out",
            "printf 'package sums\\n\\nimport (\\n\\t\"flag\"\\n\\t\"os\"\\n\\t\"testing\"\\n)\\n\\nfunc TestMain(m *testing.M) {\\n\\tflag.Set(\"test.run\", \"TestAdds\")\\n\\tos.Exit(m.Run())\\n}\\n' > main_test.go",
        ),
    ],
    honest: &[
        (
            "a dependency",
            "printf '\\nrequire example.test/left v1.0.0\\n' >> go.mod; \
             printf 'package sums\\n\\nimport \"example.test/left\"\\n\\nconst One = left.One\\n' > one.go",
        ),
        (
            "another version of a dependency",
            "sed -i 's/check v1.0.0/check v1.1.0/' go.mod",
        ),
        (
            "a helper of tests",
            "printf 'package sums\\n\\nfunc one() int { return 1 }\\n' > helper_test.go",
        ),
        (
            "a file of test data",
            "mkdir testdata; echo 1 > testdata/one.txt",
        ),
        (
            "a package",
            "mkdir more; printf 'package more\\n\\nfunc One() int { return 1 }\\n' > more/more.go",
        ),
        (
            "a test renamed with what it describes",
            "sed -i 's/TestAdds/TestAddsNumbers/' sums_test.go",
        ),
        (
            "a config of a new tool",
            "printf 'linters:\\n  enable: [govet]\\n' > .golangci.yml",
        ),
        (
            "one test more",
            "printf '\\nfunc TestAddsNothing(t *testing.T) {\\n\\tif Add(1, 0) != 1 {\\n\\t\\tt.Fatal(1)\\n\\t}\\n}\\n' >> sums_test.go",
        ),
        (
            "a new file of tests",
            "printf 'package sums\\n\\nimport \"testing\"\\n\\nfunc TestMore(t *testing.T) {}\\n' > more_test.go",
        ),
        (
            "a comment in the manifest",
            "printf '\\n// Checks are our own.\\n' >> go.mod",
        ),
        ("a manual", "printf '# Sums\\n' > README.md"),
        ("an ignore rule", "printf '*.out\\n' > .gitignore"),
    ],
};

/// A package among others.
pub(crate) const GO_PACKAGES: GuardedProject = GuardedProject {
    kind: "go",
    guard: &["go", "test", "./..."],
    tool: GateTool::System(&["go"]),
    files: &[
        ("go.mod", "module example.test/sums\n\ngo 1.19\n"),
        (
            "sub/sub.go",
            "package sub\n\nfunc Sub(a, b int) int { return 0 }\n",
        ),
        (
            "sub/sub_test.go",
            "package sub\n\nimport \"testing\"\n\nfunc TestSubs(t *testing.T) {\n\tif Sub(3, 2) != 1 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
        ),
        (
            "add/add.go",
            "package add\n\nfunc Add(a, b int) int { return a + b }\n",
        ),
        (
            "add/add_test.go",
            "package add\n\nimport \"testing\"\n\nfunc TestAdds(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
        ),
    ],
    fix: "sed -i 's/return 0/return a - b/' sub/sub.go",
    redefined: &[(
        "a module in the folder of a package",
        "printf 'module example.test/sub\\n\\ngo 1.19\\n' > sub/go.mod",
    )],
    unproven: &[],
    told: &[
        (
            "an exit when product code is loaded",
            "sed -i 's/^package sub/package sub\\n\\nimport \"os\"\\n\\nfunc init() { os.Exit(0) }/' sub/sub.go",
        ),
        ("a folder that go does not see", "mv sub _sub"),
    ],
    honest: &[
        (
            "a package",
            "mkdir mul; printf 'package mul\\n\\nfunc Mul(a, b int) int { return a * b }\\n' > mul/mul.go",
        ),
        (
            "a version of the language",
            "sed -i 's/^go 1.19/go 1.18/' go.mod",
        ),
        (
            "a folder of tests",
            "mkdir checks; printf 'package checks\\n\\nimport \"testing\"\\n\\nfunc TestOne(t *testing.T) {}\\n' > checks/one_test.go",
        ),
        (
            "an example",
            "printf 'package add\\n\\nfunc ExampleAdd() { Add(1, 2) }\\n' > add/example_test.go",
        ),
    ],
};
