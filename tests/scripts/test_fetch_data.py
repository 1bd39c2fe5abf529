"""fetch_data.sh: offline, resumed, damaged, from a copy."""

import hashlib
import unittest

from support import ScriptTest


class FetchData(ScriptTest):
    script = "fetch_data.sh"

    def setUp(self):
        super().setUp()
        # The real text is not needed: the script is told to expect this one.
        self.text = b"to be, or not to be\n" * 50
        path = self.folder / "scripts" / self.script
        real = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
        content = path.read_text()
        self.assertIn(real, content)
        path.write_text(content.replace(real, hashlib.sha256(self.text).hexdigest()))
        (self.folder / "source").write_bytes(self.text)
        self.target = self.folder / "data" / "input.txt"
        self.part = self.folder / "data" / "input.txt.part"

    def serve(self):
        """A curl that appends what the .part file lacks, as `--continue-at -` does."""
        self.fake("curl", f"""
while [ $# -gt 1 ]; do [ "$1" != --output ] || out=$2; shift; done
have=$(stat -c %s "$out" 2>/dev/null || echo 0)
echo "$have" >{self.folder}/resumed_at
tail -c +$((have + 1)) {self.folder}/source >>"$out"
""")

    def test_offline_is_one_clear_line(self):
        self.fake("curl", 'echo "curl: (6) Could not resolve host: somewhere" >&2; exit 6\n')
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertIn("error: cannot download", result.stderr)
        self.assertIn("Could not resolve host", result.stderr)
        self.assertFalse(self.target.exists())

    def test_a_download_is_verified_and_renamed(self):
        self.serve()
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.target.read_bytes(), self.text)
        self.assertFalse(self.part.exists())

    def test_a_second_run_downloads_nothing(self):
        self.serve()
        self.run_script()
        self.fake("curl", "exit 99\n")
        result = self.run_script()
        self.assertEqual(result.returncode, 0)
        self.assertIn("present", result.stdout)

    def test_an_interrupted_download_goes_on_where_it_stopped(self):
        self.part.parent.mkdir()
        self.part.write_bytes(self.text[:123])
        self.serve()
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual((self.folder / "resumed_at").read_text().strip(), "123")
        self.assertEqual(self.target.read_bytes(), self.text)

    def test_a_server_that_cannot_resume_is_asked_from_the_start(self):
        self.part.parent.mkdir()
        self.part.write_bytes(self.text[:123])
        self.fake("curl", f"""
while [ $# -gt 1 ]; do [ "$1" != --output ] || out=$2; shift; done
[ ! -e "$out" ] || exit 33
cp {self.folder}/source "$out"
""")
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.target.read_bytes(), self.text)

    def test_a_damaged_download_is_removed(self):
        (self.folder / "source").write_bytes(b"<html>not found</html>")
        self.serve()
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        self.assertIn("not the expected text", result.stderr)
        self.assertFalse(self.target.exists())
        self.assertFalse(self.part.exists())

    def test_a_copy_at_hand_is_taken_when_it_is_the_right_one(self):
        self.fake("curl", "exit 99\n")
        self.assertEqual(self.run_script("--from", "source").returncode, 0)
        self.target.unlink()
        (self.folder / "source").write_bytes(b"something else")
        result = self.run_script("--from", "source")
        self.assertEqual(result.returncode, 1)
        self.assertIn("not the expected text", result.stderr)

    def test_wrong_arguments_are_usage_errors(self):
        for arguments in (["shakespear"], ["--from"], ["--from", "nowhere"], ["all", "--from", "source"]):
            with self.subTest(arguments=arguments):
                result = self.run_script(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(len(result.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
