"""The pages of docs/: tables made from the code, commands that are typed, links that lead
somewhere.
"""
