"""Runs a piece of Python over a tree file: tree_edit.py FILE CODE [ARG...]."""
import json
import sys


def main():
    path, code, args = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(path, encoding="utf-8") as file:
        root = json.load(file)

    def find(node_id, node=root):
        if node["id"] == node_id:
            return node
        for below in node["children"]:
            found = find(node_id, below)
            if found is not None:
                return found
        if node is root:
            sys.exit(f"no node {node_id!r} in the tree")
        return None

    def child(parent, node_id, order, title, **fields):
        node = {
            "id": node_id,
            "order": order,
            "title": title,
            "goal": f"Make {title} true.",
            "acceptance": [],
            "passes": False,
            "attempts": 0,
            "max_attempts": 3,
            "children": [],
        }
        node.update(fields)
        parent["children"].append(node)
        parent["children"].sort(key=lambda each: (each["order"], each["id"]))
        return node

    exec(code, {"t": root, "n": find, "child": child, "args": args, "json": json})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(root, file, indent=2, ensure_ascii=False)
        file.write("\n")


main()
