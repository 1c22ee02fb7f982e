"""The rules, related ones in one module: the facts of each rule and its judge, which changes nothing.

``registry`` lists them.
"""
