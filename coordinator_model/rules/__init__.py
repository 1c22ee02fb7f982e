"""The rules, one family per module: the facts of each rule and its judge, which only reads. ``registry`` lists them."""
